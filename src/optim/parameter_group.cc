#include "reigen/optim/parameter_group.h"

#include <algorithm>
#include <utility>

#include "base/name_patterns.h"

namespace reigen::optim {
ParameterGroup no_decay(std::vector<std::string> patterns) {
  return {.patterns = std::move(patterns), .weight_decay = 0.0, .adapt = false};
}

bool matches(const std::string& pattern, const tensor::Segment& segment) {
  if (pattern == "@vectors") return segment.shape.size() <= 1;
  return base::matches_name(pattern, segment.name, segment.aliases);
}

std::vector<std::string> unmatched_patterns(const std::vector<ParameterGroup>& groups,
                                            const std::vector<ParameterRange>& ranges) {
  std::vector<std::string> result;
  for (const ParameterGroup& group : groups) {
    for (const std::string& pattern : group.patterns) {
      const bool used = std::any_of(ranges.begin(), ranges.end(), [&](const ParameterRange& range) {
        return std::any_of(range.segments().begin(), range.segments().end(),
                           [&](const tensor::Segment& segment) { return matches(pattern, segment); });
      });
      if (!used) result.push_back(pattern);
    }
  }
  return result;
}

}  // namespace reigen::optim
