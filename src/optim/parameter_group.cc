#include "reigen/optim/parameter_group.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace reigen::optim {
namespace {

// In a pattern, `*` matches any text and `?` any character. After a mismatch the search returns only to the last `*`
// before the mismatch. The texts that earlier `*` have matched need not change, because the last `*` can match any
// text.
bool matches_text(std::string_view pattern, std::string_view text) {
  std::size_t at = 0;
  std::size_t in_text = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (in_text < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_text = in_text;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[in_text])) {
      ++at;
      ++in_text;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in_text = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace

ParameterGroup no_decay(std::vector<std::string> patterns) {
  return {.patterns = std::move(patterns), .weight_decay = 0.0, .adapt = false};
}

bool matches(const std::string& pattern, const tensor::Segment& segment) {
  if (pattern == "@vectors") return segment.shape.size() <= 1;
  return matches_text(pattern, segment.name) ||
         std::any_of(segment.aliases.begin(), segment.aliases.end(),
                     [&](const std::string& alias) { return matches_text(pattern, alias); });
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
