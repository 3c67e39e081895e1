#include "comm/hierarchical/layout.h"

#include <algorithm>
#include <utility>

namespace reigen::comm::hierarchical {

Layout::Layout(Machines all, int own) : machines(std::move(all)), rank(own) {
  std::size_t size = 0;
  for (const auto& members : machines) size += members.size();
  machine_of_.resize(size);
  place_of_.resize(size);
  std::size_t least = size;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    least = std::min(least, machines[m].size());
    for (std::size_t i = 0; i < machines[m].size(); ++i) {
      const auto q = static_cast<std::size_t>(machines[m][i]);
      machine_of_[q] = static_cast<int>(m);
      place_of_[q] = static_cast<int>(i);
      order.push_back(machines[m][i]);
    }
  }
  machine = machine_of(own);
  place = place_of(own);
  carriers = static_cast<int>(least);
  in_order = std::is_sorted(order.begin(), order.end());
}

}  // namespace reigen::comm::hierarchical
