// Implements data_parallel() for one model. The layout determines how gradients are exchanged (class Exchange) and
// where weights are (class Weights). The reducer watches backward (BackwardWatch, UnitWatch), and calls Exchange and
// Weights when gradients are ready and when backward enters a unit or ends.
//
// A round is one averaging of gradients. The first gradient of a backward begins the round. Hooks pass gradients to
// Exchange while backward runs, and the end of backward finishes the round. Between rounds a forward may synchronise
// buffers.
//
// If a backward throws, its round is dead, but calls that it started may still run. The next forward waits for these
// calls. If another backward comes before the next forward, it is late (`is_late_`): its hooks must not wait for the
// dead round's calls, so they leave gradients where backward made them. The end of the late backward waits for the dead
// round's calls, and then starts and finishes its own calls. If the dead round's gradients are still in `.grad`, a late
// backward throws, because it would add to gradients that are still being sent.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/buffer_sync.h"
#include "parallel/check/model_guard.h"
#include "parallel/exchange/exchange.h"
#include "parallel/exchange/joined.h"
#include "parallel/trained_parameters.h"
#include "parallel/watch/backward_watch.h"
#include "parallel/watch/unit_watch.h"
#include "parallel/weights/rank_weights.h"
#include "parallel/weights/weights.h"
#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/strategy.h"
#include "reigen/tensor/flat_parameters.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

class FirstValues;

class GradientReducer {
 public:
  // Compares the model between ranks, packs the parameters, broadcasts rank 0's values and installs the hooks.
  GradientReducer(torch::nn::Module& module, Communicator world, const DataParallelOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;  // hooks point to this object
  GradientReducer& operator=(const GradientReducer&) = delete;

  const std::vector<ParameterRange>& ranges() const { return flat_->ranges(); }
  // The ranges that ranges() returns, and the ranges of frozen parameters that are divided between ranks.
  std::vector<ParameterRange> all_ranges() const;
  std::vector<tensor::NamedTensor> own_weights() const;
  std::vector<tensor::NamedTensor> own(std::vector<tensor::NamedTensor> tensors) const;
  void load(const checkpoint::Checkpoint& from, std::string_view group);
  const layout::Layout& layout() const { return layout_; }
  const layout::Coordinates& coordinates() const { return coordinates_; }
  const DataParallelOptions& options() const { return options_; }
  Shard shard() const { return distributed() ? options_.shard : Shard::kNone; }
  const Communicator& replicas() const { return groups_.replicas; }
  bool gathers() const { return weights_->come_and_go(); }
  void gather_weights() { weights_->gather_all(); }
  std::chrono::duration<double> exposed() const { return exposed_; }
  std::size_t bucket_count() const { return exchange_ ? exchange_->bucket_count() : 0; }
  std::vector<BucketTimes> bucket_times() const;
  std::uint64_t bytes_given() const;
  // How many memory blocks were allocated so far for gathered weights and for gradients. After the first steps this
  // number no longer grows.
  std::int64_t allocations() const { return weights_->allocations() + (exchange_ ? exchange_->allocations() : 0); }

  void number_step(std::int64_t step);
  void prepare_forward();
  void synchronize();
  void after_step();
  void settle();
  // Whether each rank steps with its own gradients instead of averaged gradients.
  bool ranks_differ() const { return distributed() && !averages_gradients(); }
  std::map<std::string, at::Tensor> strategy_state() const;
  void load_strategy_state(const std::map<std::string, at::Tensor>& state);
  void enter_no_sync() { ++no_sync_depth_; }
  void leave_no_sync();

  // For DistributedOptimizer. is_averaged(): whether gradients were averaged after the last start_over().
  // accumulated(): how many backwards after the last average only added up gradients; start_over() and a failed
  // backward set it to 0. If guard_steps() was called, a backward between an average and start_over() throws
  // InvalidArgument.
  bool is_averaged() const { return averaged_; }
  // If it is true outside of backward, a backward has failed.
  bool has_unfinished_backward() const { return watch_->is_active(); }
  std::int64_t accumulated() const { return accumulated_; }
  void start_over();
  void guard_steps() { guards_steps_ = true; }

  // For Join (reigen/parallel/join.h), under which the data of some ranks may end earlier. While a Join lives, each
  // rank asks all ranks which of them still train, before each round and before each forward that synchronises buffers.
  void begin_join(const JoinOptions& options);
  void answer_until_all_are_done(const std::function<void()>& step);
  void leave_join();

 private:
  void choose_strategies();
  void compare_between_ranks();
  void pack(const std::vector<tensor::NamedParameter>& own, FirstValues& values);
  void place_weights();
  void choose_exchange();
  void attach();
  bool gradients_are(layout::AlongKind kind) const;
  bool weights_are_equal() const;

  void on_gradient(std::size_t parameter);
  void on_unit(std::size_t unit);
  void on_backward_end();
  void begin_round();
  void catch_up();
  void finish();
  void reset();
  void end_backward();
  void give_up_round();
  void prepare_round();
  void refuse_another_backward() const;
  void require_step_told() const;
  void require_elsewhere(std::size_t parameter) const;
  void sync_buffers(const std::string& tag);
  void drop_gradients();
  std::string prefix_of_weights() const;

  bool distributed() const { return world_.size() > 1; }
  bool averages_gradients() const { return !weight_strategy_ || weight_strategy_->averages_gradients(); }
  bool only_adds_up() const { return accumulated_ + 1 < options_.backwards_per_reduction; }
  // Whether buckets may start while this backward runs.
  bool overlaps() const {
    return options_.overlap && no_sync_depth_ == 0 && averages_gradients() && !only_adds_up() && !is_late_;
  }
  Round round() const { return {.step = step_}; }
  std::string tag(const char* what) const;

  torch::nn::Module& module_;  // the model, or with a pipeline this rank's stages of it
  Communicator world_;
  const DataParallelOptions options_;
  RankGroups groups_;
  layout::Layout layout_;
  layout::Coordinates coordinates_;
  std::unique_ptr<GradientStrategy> gradient_strategy_;  // null unless gradients are exchanged in buckets
  std::unique_ptr<WeightStrategy> weight_strategy_;      // null unless a strategy changes weights between steps
  std::unique_ptr<tensor::FlatParameters> flat_;
  std::unique_ptr<ModelGuard> guard_;
  TrainedParameters trained_;
  std::unique_ptr<BufferSync> buffers_;
  std::unique_ptr<Exchange> exchange_;  // null if this rank is alone
  Joined* joined_ = nullptr;            // null unless a Join lives; then *exchange_ is this object
  std::shared_ptr<UnitWatch> units_;    // null if nothing needs to know which unit a backward is in
  std::shared_ptr<Weights> weights_;
  std::shared_ptr<BackwardWatch> watch_;

  bool is_late_ = false;            // the end of this backward first waits for the calls of a dead round
  bool buffers_are_fresh_ = false;  // prepare_round() ran in training mode after the last round
  bool step_is_due_ = false;        // a round is over, and after_step() was not called after it
  int no_sync_depth_ = 0;
  std::int64_t accumulated_ = 0;  // number of backwards that only added up gradients
  bool averaged_ = false;
  bool guards_steps_ = false;
  std::int64_t step_ = 0;  // the step's number in tags; it counts rounds, unless the caller sets it
  std::chrono::duration<double> exposed_{0};
};

}  // namespace reigen::parallel
