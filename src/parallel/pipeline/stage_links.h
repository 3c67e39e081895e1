// Which tensors the stages of a pipeline give each other: a stage gives the next one what the next unit gets, and it
// gives each stage the tensors of skip connections that end there.
//
// How it works: a link goes from one stage to another. Its tensors are first those for the next unit, if the stages are
// neighbours, and then those of the skip connections, in the order in which the model declares them.
// Thread rule: const; every thread may use it.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "nn/skip_connections.h"
#include "parallel/pipeline/stages.h"
#include "reigen/nn/unit.h"
#include "reigen/schedule/schedule.h"

namespace reigen::parallel {

// The tensors of a stage's links, by the stage on the other side. The model's input comes from stage -1.
using ByStage = std::map<int, nn::Carry>;

class StageLinks {
 public:
  StageLinks(const Stages& stages, nn::SkipConnections skips);

  const nn::SkipConnections& skips() const { return skips_; }
  // The skip connections that a schedule must have: those over at least one stage.
  std::vector<schedule::Skip> scheduled() const;
  // The numbers of the skip connections between two stages.
  const std::vector<std::size_t>& skips_between(int from, int to) const { return links_.at({from, to}); }
  // The stages that give tensors to `stage`, in rising order.
  std::vector<int> sources_of(int stage) const;

  // What lies before the first unit of a stage that got these tensors.
  nn::Between arrived(int stage, const ByStage& tensors) const;
  // What the stage gives, if this lies behind its last unit.
  ByStage leaving(int stage, const nn::Between& between) const;

 private:
  nn::SkipConnections skips_;
  std::map<std::pair<int, int>, std::vector<std::size_t>> links_;  // by the stages on both sides
};

}  // namespace reigen::parallel
