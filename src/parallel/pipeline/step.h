// One step of a rank in a pipeline: the actions of its list, one after the other.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/split_backward.h"
#include "parallel/pipeline/stages.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/schedule/schedule.h"

namespace reigen::parallel {

// What the units of a pipeline do while PipelineStep::loss runs the model's forward.
struct LastStage {
  std::size_t first = 0;  // its first unit
  std::size_t end = 0;
  std::optional<nn::Carry> input = {};  // what the stage before has sent; nothing if it is also the first stage
  std::size_t ran = 0;                  // how many of its units have run
  nn::Carry passed = {};                // what the unit before returned
};

class StepRun {
 public:
  // `last`: set while the loss is computed, for the units. `rank`: this rank's coordinate along the axis.
  StepRun(const Stages& stages, const schedule::Schedule& schedule, int rank, const PipelineStep& what,
          Messages& messages, std::optional<LastStage>& last, PipelineReport& report);

  // Runs the actions of the rank's list. before_last_backward() is called before the last action that computes
  // gradients.
  void run(const std::function<void()>& before_last_backward);
  // Runs the forwards of a list that has no other computations, without gradients.
  void run_forwards();

  // The action that runs now; for error messages.
  const schedule::Action& now() const { return now_; }

 private:
  using Key = std::pair<int, int>;  // stage and micro-batch
  // What a stage keeps of a micro-batch, from F to B.
  struct Activation {
    nn::Carry input = {};
    nn::Carry output = {};  // empty for the last stage
    at::Tensor loss = {};
    std::optional<SplitBackward> weights = {};  // between I and W
  };

  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage + 1 == stages_.count(); }
  int rank_of(int stage) const { return schedule_.placement[static_cast<std::size_t>(stage)]; }
  bool is_local(int stage) const { return rank_of(stage) == rank_; }

  void act(const schedule::Action& action);
  void compute(const schedule::Action& action);
  void note_in_flight(int stage);
  void forward(int stage, int micro_batch);
  void backward(const schedule::Action& action);
  void backward_weights(const schedule::Action& action);
  nn::Carry input_of(int stage, int micro_batch);
  bool recomputes(int stage) const;
  nn::Carry run_units(int stage, nn::Carry input) const;
  void run_last(int stage, nn::Carry input, const std::function<void()>& body);
  nn::Carry wait_for(const schedule::Action& receive);
  double now_s() const;

  const Stages& stages_;
  const schedule::Schedule& schedule_;
  const int rank_;
  const PipelineStep& what_;
  Messages& messages_;
  std::optional<LastStage>& last_;
  PipelineReport& report_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  schedule::Action now_;
  bool only_forwards_ = false;
  std::map<Key, Activation> in_flight_;
  std::map<Key, nn::Carry> inputs_;           // of stages whose input is made on this rank
  std::map<Key, nn::Carry> gradients_;        // of outputs whose reader is on this rank
  std::map<Key, nn::Carry> input_gradients_;  // until they are sent
  double waited_ = 0;                         // in the action that runs now
};

}  // namespace reigen::parallel
