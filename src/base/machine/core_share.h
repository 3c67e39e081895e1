// A rank's part of the processors of its machine.
#pragma once

#include <string>

namespace reigen::base {

struct CoreShare {
  int threads = 1;           // that this rank may compute with, at least 1
  double cores = 1;          // processors that are its own: less than one where ranks share them
  int ranks = 1;             // of the group on this machine
  int ranks_in_process = 1;  // of these: threads of this process
  bool is_first = true;      // this rank is the first of them
  int total = 1;             // processors that these ranks have together
  std::string limit = {};    // what gives them no more: "2 processors", "a quota of 1.5 cores (/sys/.../cpu.max)"
};

}  // namespace reigen::base
