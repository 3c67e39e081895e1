// Patterns of names of parameters (DataParallelOptions::optimizers).
// Thread rule: no shared state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/text.h"

namespace reigen::parallel {

// Returns the number of the first list with a pattern that matches the name or one of the aliases (the other names of a
// tied parameter), or the number of lists.
inline std::size_t list_of(const std::string& name, const std::vector<std::string>& aliases,
                           const std::vector<std::vector<std::string>>& lists) {
  const auto matches = [&](const std::string& pattern) {
    return base::matches_pattern(pattern, name) ||
           std::any_of(aliases.begin(), aliases.end(),
                       [&](const std::string& alias) { return base::matches_pattern(pattern, alias); });
  };
  const auto list = std::find_if(lists.begin(), lists.end(), [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(), matches);
  });
  return static_cast<std::size_t>(list - lists.begin());
}

}  // namespace reigen::parallel
