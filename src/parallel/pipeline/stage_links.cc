#include "parallel/pipeline/stage_links.h"

#include "base/check.h"

namespace reigen::parallel {

StageLinks::StageLinks(const Stages& stages, nn::SkipConnections skips) : skips_(std::move(skips)) {
  for (int stage = 1; stage < stages.count(); ++stage) links_[{stage - 1, stage}] = {};
  for (std::size_t i = 0; i < skips_.ends().size(); ++i) {
    const int from = stages.stage_of(skips_.ends()[i].from);
    const int to = stages.stage_of(skips_.ends()[i].to);
    if (from != to) links_[{from, to}].push_back(i);
  }
}

std::vector<schedule::Skip> StageLinks::scheduled() const {
  std::vector<schedule::Skip> result;
  for (const auto& [ends, numbers] : links_) {
    if (ends.first + 1 < ends.second) result.push_back({.from = ends.first, .to = ends.second});
  }
  return result;
}

std::vector<int> StageLinks::sources_of(int stage) const {
  std::vector<int> sources;
  for (const auto& [ends, numbers] : links_) {
    if (ends.second == stage) sources.push_back(ends.first);
  }
  return sources;
}

nn::Between StageLinks::arrived(int stage, const ByStage& tensors) const {
  nn::Between between = skips_.begin({});
  for (const auto& [from, given] : tensors) {
    const auto link = links_.find({from, stage});
    const std::size_t skips = link == links_.end() ? 0 : link->second.size();
    REIGEN_ASSERT(given.size() >= skips, "{} tensors from stage {} to stage {}", given.size(), from, stage);
    const auto first = given.end() - static_cast<std::ptrdiff_t>(skips);
    if (from == stage - 1) between.carry.assign(given.begin(), first);
    for (std::size_t i = 0; i < skips; ++i) between.skips[link->second[i]] = first[static_cast<std::ptrdiff_t>(i)];
  }
  return between;
}

ByStage StageLinks::leaving(int stage, const nn::Between& between) const {
  ByStage result;
  for (const auto& [ends, numbers] : links_) {
    if (ends.first != stage) continue;
    nn::Carry& given = result[ends.second];
    if (ends.second == stage + 1) given = between.carry;
    for (const std::size_t number : numbers) given.push_back(between.skips[number]);
  }
  return result;
}

}  // namespace reigen::parallel
