// train.compare_every: compares what ranks must hold alike.
// Thread rule: the thread of its rank.
#pragma once

#include <cstdint>

#include "train/files/checkpoints.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/watch/watcher.h"

namespace reigen::train {

// Collective after each step that is due. Compares weights and states that ranks hold each for itself; of those that
// ranks of a replica hold once, a rank looks at its share. Throws 81 on every rank if they differ, because nobody can
// tell later which are right.
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
