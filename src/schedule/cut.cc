#include "reigen/schedule/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reigen/base/error.h"

namespace reigen::schedule {

std::vector<std::size_t> cut(const std::vector<double>& costs, int stages) {
  const std::size_t units = costs.size();
  if (stages < 1 || units < static_cast<std::size_t>(stages)) {
    throw InvalidArgument(Report{.what = "[schedule] the units cannot be cut into stages",
                                 .got = fmt::format("{} units, {} stages", units, stages),
                                 .expected = "1 stage or more, and a unit for each",
                                 .fix = "choose fewer stages, or divide the model into more units"});
  }
  for (std::size_t i = 0; i < units; ++i) {
    if (std::isfinite(costs[i]) && costs[i] >= 0) continue;
    throw InvalidArgument(Report{.what = fmt::format("[schedule] the cost of unit {} is no cost", i),
                                 .got = fmt::format("{}", costs[i]),
                                 .expected = "0 or more"});
  }
  std::vector<double> before{0};  // before[i] = the costs of the units before unit i
  for (const double cost : costs) before.push_back(before.back() + cost);
  // least[s][i] = the smallest possible largest cost of s + 1 stages that have the units from i on.
  const auto count = static_cast<std::size_t>(stages);
  std::vector<std::vector<double>> least(count,
                                         std::vector<double>(units + 1, std::numeric_limits<double>::infinity()));
  for (std::size_t i = 0; i < units; ++i) least[0][i] = before[units] - before[i];
  for (std::size_t s = 1; s < count; ++s) {
    for (std::size_t i = 0; i + s < units; ++i) {
      for (std::size_t next = i + 1; next + s <= units; ++next) {
        least[s][i] = std::min(least[s][i], std::max(before[next] - before[i], least[s - 1][next]));
      }
    }
  }
  std::vector<std::size_t> first{0};
  for (std::size_t s = count - 1; s > 0; --s) {
    std::size_t next = first.back() + 1;
    while (std::max(before[next] - before[first.back()], least[s - 1][next]) > least[s][first.back()]) ++next;
    first.push_back(next);
  }
  return first;
}

}  // namespace reigen::schedule
