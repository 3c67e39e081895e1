// Where the ranks of a hierarchical group are, as one of them sees it. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/hierarchical/machines.h"

namespace reigen::comm::hierarchical {

struct Layout {
  Layout(Machines all, int rank);

  int machine_of(int q) const { return machine_of_[static_cast<std::size_t>(q)]; }
  // Its place among the ranks of its machine; 0: the machine's first rank.
  int place_of(int q) const { return place_of_[static_cast<std::size_t>(q)]; }
  int machine_count() const { return static_cast<int>(machines.size()); }
  const std::vector<int>& neighbours() const { return machines[static_cast<std::size_t>(machine)]; }

  Machines machines;
  int rank;
  int machine;             // of this rank
  int place;               // of this rank
  int carriers;            // ranks of every machine that talk to their like on the others: the least ranks of any
  std::vector<int> order;  // all ranks, machine by machine
  bool in_order = true;    // ... which is the order of their numbers

 private:
  std::vector<int> machine_of_;
  std::vector<int> place_of_;
};

}  // namespace reigen::comm::hierarchical
