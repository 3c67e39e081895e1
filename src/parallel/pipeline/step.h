// One step of a rank in a pipeline: the actions of its list, one after the other.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "parallel/pipeline/last_stage.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/split_backward.h"
#include "parallel/pipeline/stage_links.h"
#include "parallel/pipeline/stages.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/schedule/schedule.h"

namespace reigen::parallel {

class StepRun {
 public:
  // `last`: set while the loss is computed, for the units. `rank`: this rank's coordinate along the axis.
  StepRun(const Stages& stages, const StageLinks& links, const schedule::Schedule& schedule, int rank,
          const PipelineStep& what, Messages& messages, std::optional<LastStage>& last, PipelineReport& report);

  // Runs the actions of the rank's list. before_last_backward() is called before the last action that computes
  // gradients.
  void run(const std::function<void()>& before_last_backward);
  // Runs the forwards of a list that has no other computations, without gradients. Sends follow their forward.
  void run_forwards();

  // The action that runs now; for error messages.
  const schedule::Action& now() const { return now_; }

 private:
  using Key = std::pair<int, int>;        // stage and micro-batch
  using Way = std::tuple<int, int, int>;  // the stage that gives tensors, the one that gets them, and the micro-batch
  // What a stage keeps of a micro-batch, from F to B.
  struct Activation {
    ByStage inputs = {};                        // by the stage that gave them
    ByStage outputs = {};                       // by the stage that gets them
    at::Tensor loss = {};                       // of the last stage
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
  ByStage inputs_of(int stage, int micro_batch);
  nn::Carry gradients_of(int stage, int micro_batch, int target);
  bool recomputes(int stage) const;
  void run_last(int stage, int micro_batch, const ByStage& inputs, const std::function<void()>& body);
  void check_input(const nn::Carry& given, const nn::Carry& expected) const;
  nn::Carry wait_for(const schedule::Action& receive);
  double now_s() const;

  const Stages& stages_;
  const StageLinks& links_;
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
  std::map<Way, nn::Carry> inputs_;     // that come from a stage on this rank
  std::map<Way, nn::Carry> gradients_;  // of inputs, until they are sent, or used by a stage on this rank
  double waited_ = 0;                   // in the action that runs now
};

}  // namespace reigen::parallel
