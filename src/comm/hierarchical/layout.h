// The machine of each rank of a hierarchical group, and the rank's place: its index among the ranks of the machine.
// Also the machine and the place of this rank itself. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/hierarchical/machines.h"

namespace reigen::comm::hierarchical {

struct Layout {
  Layout(Machines all, int rank);

  int machine_of(int q) const { return machine_of_[static_cast<std::size_t>(q)]; }
  // The place of rank q among the ranks of its machine; the first rank of the machine has place 0.
  int place_of(int q) const { return place_of_[static_cast<std::size_t>(q)]; }
  int machine_count() const { return static_cast<int>(machines.size()); }
  const std::vector<int>& neighbours() const { return machines[static_cast<std::size_t>(machine)]; }

  Machines machines;
  int rank;
  int machine;  // of this rank
  int place;    // of this rank
  // The number of carriers of each machine, which is the number of ranks of the smallest machine. The carriers are the
  // first ranks of a machine. Each carrier sends data to, and receives data from, the ranks with the same place on the
  // other machines.
  int carriers;
  std::vector<int> order;  // all ranks, machine by machine
  bool in_order = true;    // whether `order` is ascending

 private:
  std::vector<int> machine_of_;
  std::vector<int> place_of_;
};

}  // namespace reigen::comm::hierarchical
