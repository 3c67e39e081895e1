// Patterns of names of parameters. A tied parameter has further names, its aliases.
// Thread rule: no shared state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/text.h"

namespace reigen::base {

// Whether the pattern matches the name or one of the aliases.
inline bool matches_name(const std::string& pattern, const std::string& name, const std::vector<std::string>& aliases) {
  return matches_pattern(pattern, name) || std::any_of(aliases.begin(), aliases.end(), [&](const std::string& alias) {
           return matches_pattern(pattern, alias);
         });
}

// Returns the number of the first list with a pattern that matches the name or one of the aliases, or the number of
// lists.
inline std::size_t list_of(const std::string& name, const std::vector<std::string>& aliases,
                           const std::vector<std::vector<std::string>>& lists) {
  const auto list = std::find_if(lists.begin(), lists.end(), [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches_name(pattern, name, aliases); });
  });
  return static_cast<std::size_t>(list - lists.begin());
}

}  // namespace reigen::base
