// A rank's share of the processors of its machine.
#pragma once

#include <string>

namespace reigen::base {

struct CoreShare {
  int threads = 1;           // threads that this rank may compute with, at least 1
  double cores = 1;          // processors for this rank alone; a fraction if ranks share processors
  int ranks = 1;             // ranks of the group on this machine
  int ranks_in_process = 1;  // how many of `ranks` are threads of this process
  bool is_first = true;      // whether this rank is the first on this machine
  int total = 1;             // processors that the ranks on this machine have together
  std::string limit = {};    // what limits `total`: "2 processors", "a quota of 1.5 cores (/sys/.../cpu.max)"
};

}  // namespace reigen::base
