// Averages gradients over the ranks while backward runs.
//
// Every trainable parameter has a slot in its range's gradient buffer, followed by a spare element: the flag that says
// "this rank has a gradient here". A hook that runs when the parameter's gradient is complete moves it into the slot;
// the hook of a bucket's last parameter gives the bucket to the strategy, which brings the ranks' together and carries
// the flags along. Buckets start in order, so that all ranks call the same operations in the same order whatever the
// arrival. A callback at the end of backward fills what is missing with zeros and waits. The first backward tells in
// which order gradients come; buckets are then cut once more, on all ranks as rank 0's came.
// Where weights come and go a rank that waits for a bucket keeps others waiting for weights, so buckets start when
// backward is past their unit (UnitGatherer::is_behind), which all ranks say at the same place, complete or not.
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
#include <utility>
#include <vector>

#include "parallel/block_pool.h"
#include "parallel/bucket_plan.h"
#include "parallel/buffer_sync.h"
#include "parallel/roll_call.h"
#include "parallel/weight_sample.h"
#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/strategy.h"
#include "reigen/tensor/flat_parameters.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

class GradientShares;
class UnitGatherer;

class GradientReducer : public std::enable_shared_from_this<GradientReducer> {
 public:
  // Compares, packs and broadcasts; the hooks are installed by attach(), which needs the shared pointer.
  GradientReducer(torch::nn::Module& module, Communicator world, const DataParallelOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;  // hooks point to one reducer
  GradientReducer& operator=(const GradientReducer&) = delete;
  void attach();

  std::uint64_t bytes_given() const { return strategy_ ? strategy_->bytes_given() : 0; }
  const std::vector<ParameterRange>& ranges() const { return flat_->ranges(); }
  // And those of frozen parameters that ranks divide.
  std::vector<ParameterRange> all_ranges() const;
  std::vector<tensor::NamedTensor> own_weights() const;
  std::vector<tensor::NamedTensor> own(std::vector<tensor::NamedTensor> tensors) const;
  void load(const checkpoint::Checkpoint& from, std::string_view group);
  const layout::Layout& layout() const { return layout_; }
  const layout::Coordinates& coordinates() const { return coordinates_; }
  std::size_t bucket_count() const { return buckets_.size(); }
  Shard shard() const { return distributed() ? options_.shard : Shard::kNone; }
  std::chrono::duration<double> exposed() const { return exposed_; }
  const std::vector<BucketTimes>& bucket_times() const { return bucket_times_; }

  void number_step(std::int64_t step);
  void prepare_forward();
  void synchronize();
  void after_step();
  void settle();
  bool ranks_differ() const { return strategy_ && strategy_->acts_on_weights() && !strategy_->exchanges_gradients(); }
  std::map<std::string, at::Tensor> strategy_state() const;
  void load_strategy_state(const std::map<std::string, at::Tensor>& state);
  // For a wrapper of optimizers. Whether gradients were averaged, and how many backwards only added up, since
  // start_over(); a failed backward starts over too. With guard_steps() a backward between an average and start_over()
  // throws InvalidArgument.
  bool is_averaged() const { return averaged_; }
  bool has_unfinished_backward() const { return active_; }  // asked outside of backward: one that failed
  std::int64_t accumulated() const { return accumulated_; }
  void start_over();
  void guard_steps() { guards_steps_ = true; }
  // For Join (reducer_join.cc): while it lives, every forward and reduction is announced first.
  void begin_join(const JoinOptions& options);
  void answer_until_all_are_done(const std::function<void()>& step);
  void leave_join();
  void enter_no_sync() { ++no_sync_depth_; }
  void leave_no_sync() {
    --no_sync_depth_;
    stop_lending();
  }

  // From the hook of parameter `index`: its .grad is complete. Never blocks, but for the roll of a Join.
  void on_gradient(std::size_t index);
  // In front of that: what comes is not added to what was kept.
  void before_gradient(std::size_t index);
  const Communicator& replicas() const { return replicas_; }
  bool gathers() const { return gatherer_ != nullptr; }
  void gather_weights();

 private:
  struct Parameter {
    std::size_t range = 0;
    std::size_t segment = 0;
    std::size_t bucket = 0;
    bool ready = false;  // its hook fired in this reduction
    // Of gradients of which ranks keep shares:
    bool adds = false;  // the next is added to what was kept
    bool has = false;   // this rank gave one to the last reduction
  };
  struct Bucket {
    std::vector<std::size_t> parameters;
    GradientBucket given;  // to the strategy
    std::string label;     // its tag without what ranks compare of their weights
    std::size_t pending = 0;
    bool launched = false;
  };
  struct Known {  // what the module held when it was wrapped
    std::string name;
    at::Tensor parameter;
    const void* storage = nullptr;
    bool trainable = false;
  };

  void check_wrapped_once(const torch::nn::Module& module) const;
  void choose_sharers();
  void choose_layout();
  void choose_strategy();
  void pack(const std::vector<tensor::NamedParameter>& parameters);
  void prepare_values(const std::vector<tensor::NamedParameter>& parameters);
  void fill_one(const at::Tensor& parameter);
  void complete_values(const std::vector<tensor::NamedParameter>& parameters);
  void begin_as_first_replica(const std::vector<tensor::NamedParameter>& parameters);
  void require_shard_possible() const;
  void require_own_steps() const;
  void note_averages();
  void check_unchanged() const;
  void list_parameters();
  void cut_buckets(const std::vector<std::size_t>& order);
  std::vector<BucketPlan> plan(const std::vector<ParameterPlace>& places) const;
  void cut_buckets_as_gradients_come();
  void broadcast_values(const torch::nn::Module& module);
  void require_step_told() const;
  void sync_buffers(const std::string& tag);
  void average_buffers(const std::string& tag);
  void broadcast_weights(const std::string& tag, int root);
  void announce(Activity activity);
  void announce_reduction();
  void correct_for_ended();
  void drop_gradients();
  int first_training() const { return roll_call_ ? roll_call_->last().first_training : 0; }

  void prepare_reduction();
  void give_up_reduction();
  void begin();
  void refuse_another_backward() const;
  bool only_adds_up() const { return accumulated_ + 1 < options_.backwards_per_reduction; }
  void queue_callback();
  void on_backward_end();
  void finish();
  void end_bucket(std::size_t bucket);
  void end_launched();
  void make_room(const ParameterRange& range);
  void begin_shares(Bucket& bucket);
  void leave_room(Bucket& bucket);
  void keep_shares(const Bucket& bucket);
  void drop_idle_rooms();
  void launch_ready();
  void launch_behind();
  void launch(std::size_t bucket);
  void fill(const Parameter& parameter);
  void settle_flags();
  std::vector<char> shared_flags();
  std::vector<char> exchange_places();
  void lend_spare_blocks();
  void stop_lending();
  void reset();
  void end_backward();
  bool backward_is_alive() const;
  bool distributed() const { return world_.size() > 1; }
  std::string tag(const char* what) const;
  bool weights_are_equal() const;
  char* flag_of(const Parameter& parameter) const;

  torch::nn::Module& module_;
  Communicator world_;
  const DataParallelOptions options_;
  bool had_none_ = false;  // some parameter had no memory
  Communicator sharers_;   // who divide, all or a part of them
  Communicator replicas_;  // who hold the same shares
  layout::Layout layout_;
  layout::Coordinates coordinates_;
  bool stays_ = false;  // gradients stay where backward put them: no bucket travels
  std::vector<Known> known_;
  std::unique_ptr<tensor::FlatParameters> flat_;
  std::unique_ptr<BufferSync> buffers_;
  std::unique_ptr<Strategy> strategy_;
  GradientShares* shares_ = nullptr;  // the strategy, where ranks keep shares of gradients
  std::unique_ptr<BlockPool> rooms_;
  std::shared_ptr<UnitGatherer> gatherer_;  // where ranks keep shares of weights
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  std::unique_ptr<RollCall> roll_call_;  // while a Join lives
  std::optional<WeightSample> sample_;   // of weights that must be the same on every rank
  std::vector<Parameter> parameters_;    // registration order
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> arrival_;  // parameters as their gradients came in this reduction
  bool cut_again_ = false;

  bool active_ = false;    // a reduction has begun and is not finished
  bool nested_ = false;    // an inner backward of it ended
  std::size_t ready_ = 0;  // parameters whose hook fired
  std::size_t next_bucket_ = 0;
  std::vector<std::weak_ptr<int>> backwards_;  // ids of the backwards that will call back; dead ones threw
  bool buffers_are_fresh_ = false;             // a synchronised forward ran since the last reduction
  bool is_announced_ = false;                  // this reduction, to the others of a Join
  bool step_is_due_ = false;                   // after_step() has not come since
  int no_sync_depth_ = 0;
  std::int64_t accumulated_ = 0;  // backwards that only added up
  bool averaged_ = false;
  bool guards_steps_ = false;
  std::int64_t step_ = 0;  // in tags: reductions, or what the caller counts
  std::chrono::duration<double> exposed_{0};
  std::chrono::duration<double> waited_early_{0};  // within backward
  std::vector<BucketTimes> bucket_times_;          // of the reduction under way, or the last
};

}  // namespace reigen::parallel
