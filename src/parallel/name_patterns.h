// Patterns of names of parameters (DataParallelOptions::optimizers).
// Thread rule: no shared state.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace reigen::parallel {

// Whether a pattern matches the name or one of the aliases (the other names of a tied parameter).
inline bool matches_one(const std::vector<std::string>& patterns, const std::string& name,
                        const std::vector<std::string>& aliases) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return base::matches_pattern(pattern, name) ||
           std::any_of(aliases.begin(), aliases.end(),
                       [&](const std::string& alias) { return base::matches_pattern(pattern, alias); });
  });
}

}  // namespace reigen::parallel
