// The machine of each rank of a hierarchical group, and the rank's place on it, as one of the ranks sees them. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/hierarchical/machines.h"

namespace reigen::comm::hierarchical {

struct Layout {
  Layout(Machines all, int rank);

  int machine_of(int q) const { return machine_of_[static_cast<std::size_t>(q)]; }
  // The place of rank q among the ranks of its machine; 0: the first rank of the machine.
  int place_of(int q) const { return place_of_[static_cast<std::size_t>(q)]; }
  int machine_count() const { return static_cast<int>(machines.size()); }
  const std::vector<int>& neighbours() const { return machines[static_cast<std::size_t>(machine)]; }

  Machines machines;
  int rank;
  int machine;  // of this rank
  int place;    // of this rank
  // The number of carriers of each machine: the number of ranks of the smallest machine. The carriers are the first
  // ranks of a machine. Each talks to the ranks with the same place on the other machines.
  int carriers;
  std::vector<int> order;  // all ranks, machine by machine
  bool in_order = true;    // `order` is ascending

 private:
  std::vector<int> machine_of_;
  std::vector<int> place_of_;
};

}  // namespace reigen::comm::hierarchical
