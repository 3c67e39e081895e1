// train.compare_every: compares data that must be equal on several ranks.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>

#include "train/files/checkpoints.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/watch/watcher.h"

namespace reigen::train {

// Collective. After every train.compare_every-th step, compares weights and optimizer states of which each rank has its
// own copy. If ranks divide the weights and states, a rank compares its share with the same share in the other
// replicas. If copies differ, throws an Error with exit code 81 on every rank, because nobody can find out later which
// copy is right.
class ReplicaWatch : public Watcher {
 public:
  ReplicaWatch(Run& run, const TrainedModel& model, const Checkpoints& checkpoints)
      : run_(run), model_(model), checkpoints_(checkpoints) {}

  void end_step(std::int64_t step) override;

 private:
  Run& run_;
  const TrainedModel& model_;
  const Checkpoints& checkpoints_;
};

}  // namespace reigen::train
