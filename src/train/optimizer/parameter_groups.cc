#include "train/optimizer/parameter_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "config/checks.h"
#include "reigen/base/error.h"

namespace reigen::train {
namespace {

bool any_matches(const std::vector<std::string>& patterns, const tensor::Segment& segment) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return optim::matches(pattern, segment); });
}

// `whole`: the parameters of the whole model, if this rank has only some of them.
void require_matches(const char* key, const std::vector<std::string>& patterns,
                     const std::vector<ParameterRange>& ranges, const std::vector<layout::TensorSpec>& whole) {
  auto unmatched = optim::unmatched_patterns({{.patterns = patterns}}, ranges);
  std::erase_if(unmatched, [&](const std::string& pattern) {
    return std::any_of(whole.begin(), whole.end(), [&](const layout::TensorSpec& spec) {
      tensor::Segment elsewhere{};
      elsewhere.name = spec.name;
      elsewhere.aliases = spec.aliases;
      elsewhere.shape = spec.shape;
      return optim::matches(pattern, elsewhere);
    });
  });
  if (unmatched.empty()) return;
  std::vector<std::string> names;
  for (const ParameterRange& range : ranges) {
    for (const tensor::Segment& segment : range.segments()) names.push_back(segment.name);
  }
  const bool many = names.size() > 8;
  if (many) names.resize(8);
  throw InvalidArgument(Report{.what = fmt::format("{}: {} is the name of no parameter", key, unmatched.front()),
                               .got = unmatched.front(),
                               .expected = fmt::format("names like {}{}", fmt::join(names, ", "), many ? ", ..." : ""),
                               .fix = fmt::format("correct {}", key)});
}

}  // namespace

std::vector<optim::ParameterGroup> parameter_groups(const OptimConfig& config,
                                                    const std::vector<ParameterRange>& ranges,
                                                    const std::vector<layout::TensorSpec>& whole) {
  const auto no_decay = config::items_of("optim.no_decay", config.no_decay);
  const auto listed = config::items_of("optim.no_adapt", config.no_adapt);
  const bool all_adapt = config.no_adapt == "none";
  const auto no_adapt = all_adapt ? std::vector<std::string>() : listed.empty() ? no_decay : listed;
  const auto factors = config::lr_factors_of(config);
  std::vector<std::string> factor_patterns;
  for (const auto& [pattern, factor] : factors) factor_patterns.push_back(pattern);
  require_matches("optim.no_decay", no_decay, ranges, whole);
  require_matches("optim.no_adapt", no_adapt, ranges, whole);
  require_matches("optim.lr_factors", factor_patterns, ranges, whole);

  std::map<std::tuple<double, bool, bool>, std::vector<std::string>> members;
  for (const ParameterRange& range : ranges) {
    for (const tensor::Segment& segment : range.segments()) {
      const auto factor = std::find_if(factors.begin(), factors.end(),
                                       [&](const auto& one) { return optim::matches(one.first, segment); });
      const double lr_factor = factor == factors.end() ? 1 : factor->second;
      const bool decays = !any_matches(no_decay, segment);
      const bool adapts = !any_matches(no_adapt, segment);
      if (lr_factor != 1 || !decays || !adapts) members[{lr_factor, decays, adapts}].push_back(segment.name);
    }
  }
  std::vector<optim::ParameterGroup> groups;
  for (auto& [treatment, names] : members) {
    const auto [lr_factor, decays, adapts] = treatment;
    groups.push_back({.patterns = std::move(names), .lr_factor = lr_factor, .adapt = adapts});
    if (!decays) groups.back().weight_decay = 0;
  }
  return groups;
}

std::vector<optim::ParameterGroup> own_groups(const std::vector<optim::ParameterGroup>& groups,
                                              const std::vector<ParameterRange>& ranges,
                                              const std::vector<layout::TensorSpec>& whole) {
  std::vector<optim::ParameterGroup> here;
  for (optim::ParameterGroup group : groups) {
    require_matches("a group of the task's optimizer", group.patterns, ranges, whole);
    const std::vector<std::string> elsewhere = optim::unmatched_patterns({{.patterns = group.patterns}}, ranges);
    std::erase_if(group.patterns, [&](const std::string& pattern) {
      return std::find(elsewhere.begin(), elsewhere.end(), pattern) != elsewhere.end();
    });
    if (!group.patterns.empty()) here.push_back(std::move(group));
  }
  return here;
}

}  // namespace reigen::train
