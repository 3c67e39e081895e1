// The code that all optimizers share: state buffers in the layout of their ranges, step counts, groups, and the list of
// updates that a step has to make.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "optim/blocks.h"
#include "optim/device_pass.h"
#include "optim/kernels/kernels.h"
#include "reigen/optim/optimizer.h"
#include "reigen/optim/parameter_group.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// The update of one parameter in a step.
struct Update {
  kernels::Layout layout = kernels::Layout::kFloat32;
  kernels::Block block = {};  // all of the parameter
  double lr_factor = 1;
  double weight_decay = 0;
  bool adapt = true;
  std::int64_t step = 0;  // the number of this step for this parameter, from 1
  // This rank's share: elements `begin` to `end` of the parameter, as far as they exist. `ranks`: the ranks between
  // which the parameter is divided; null: this rank has all of it.
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  const Communicator* ranks = nullptr;
  // The range, or null if its gradients need not be averaged any more. `segment`: the parameter's number in the range.
  const ParameterRange* range = nullptr;
  std::size_t segment = 0;
  // Set to true where a gradient is not finite; null: not checked.
  std::atomic<bool>* not_finite = nullptr;
  at::Device device = at::kCPU;  // where the memory of `block` is, for all updates of a step
};

// Which loop of the host a rule is, and what it needs to know.
template <kernels::Rule>
struct LoopOf;

// step_of(update) gives the coefficients of the rule. Runs the rule over those blocks of all updates that are in this
// rank's share: on the host on several threads, on a GPU as one kernel.
template <kernels::Rule kRule, class StepOf>
void apply_rule(const std::vector<Update>& updates, const StepOf& step_of);

// As apply_rule(), for a rule that gives sums of squares. Returns the sums of every update, added in the order of its
// blocks. The sums include the blocks of the other ranks. Sums of an update for which needs(update) is false are not
// used.
template <kernels::Rule kRule, class StepOf, class Needs>
std::vector<kernels::Squares> sums_of_rule(const std::vector<Update>& updates, const StepOf& step_of,
                                           const Needs& needs);

struct StateKinds {
  std::vector<std::string> names = {};  // "exp_avg"; one flat buffer per range and name
  double initial = 0;
  bool bf16 = false;
  bool master = false;  // fp32 masters and states for 16-bit values
};

// Describes these states and the step count in the form that a layout takes.
std::vector<layout::StateSpec> specs_of(const StateKinds& kinds);

class RangeState {
 public:
  RangeState(std::string optimizer, std::vector<ParameterRange> ranges, StateKinds kinds, double weight_decay,
             const std::vector<ParameterGroup>& groups);

  // Counts a step for every parameter that has a gradient. If values lie in memory of several ranks, all these ranks
  // have called begin_step() when it returns.
  std::vector<Update> begin_step(const StepOptions& how);

  // Tells autograd that the values changed, so that a graph that was built before the step refuses to run backward. If
  // values lie in memory of several ranks, all these ranks have made their step when end_step() returns.
  void end_step();
  bool was_finite() const { return was_finite_; }

  void drop_gradients();
  std::int64_t steps() const { return steps_; }
  std::vector<NamedTensor> named() const;
  void load(const std::vector<NamedTensor>& state, std::int64_t steps);

 private:
  struct Treatment {
    double lr_factor = 1;
    double weight_decay = 0;
    bool adapt = true;
    std::uint64_t key = 0;  // hash of the parameter's name
  };
  struct Part {
    ParameterRange range;
    kernels::Layout layout;
    std::vector<at::Tensor> states;  // one per kind
    at::Tensor masters;              // undefined where there are none
    at::Tensor steps;                // fp32, one per segment
    std::vector<Treatment> treatments;
  };
  static void check_still_there(const ParameterRange& range, const tensor::Segment& segment);
  Update update_of(const Part& part, std::size_t segment, const StepOptions& how) const;

  std::string optimizer_;
  std::vector<std::string> kinds_;
  std::vector<Part> parts_;
  std::int64_t steps_ = 0;
  std::unique_ptr<std::atomic<bool>> not_finite_ = std::make_unique<std::atomic<bool>>(false);
  bool checks_finite_ = false;
  bool was_finite_ = true;
};

// The entry "<segment><what>": this rank's part of the segment in `flat`. `flat` has the layout of the range.
NamedTensor entry_of(const ParameterRange& range, const tensor::Segment& segment, const std::string& what,
                     const at::Tensor& flat);

// ---- How rules are run

using BlockWork = std::function<void(const Update&, const kernels::Block&)>;
using BlockSums = std::function<kernels::Squares(const Update&, const kernels::Block&)>;

// On the host: run work(update, block) for the blocks of this rank's share.
void for_each_block(const std::vector<Update>& updates, const BlockWork& work);
std::vector<kernels::Squares> sums_of_blocks(const std::vector<Update>& updates, const BlockSums& work);

// On a GPU: this rank's share of each update.
kernels::Block own_block(const Update& update);
void note_not_finite(const std::vector<Update>& updates);
std::vector<kernels::Squares> add_up(const std::vector<Update>& updates,
                                     const std::vector<kernels::Squares>& of_own_chunks);

inline bool are_on_gpu(const std::vector<Update>& updates) {
  return !updates.empty() && updates.front().device.is_cuda();
}

template <class StepOf>
auto device_parts(const std::vector<Update>& updates, const StepOf& step_of) {
  std::vector<DevicePart<decltype(step_of(updates.front()))>> parts;
  for (const Update& update : updates) parts.push_back({update.layout, own_block(update), step_of(update)});
  return parts;
}

template <>
struct LoopOf<kernels::Rule::kSgd> {
  static constexpr auto kLoop = &kernels::Kernels::sgd;
};
template <>
struct LoopOf<kernels::Rule::kAdam> {
  static constexpr auto kLoop = &kernels::Kernels::adam;
};
template <>
struct LoopOf<kernels::Rule::kAdagrad> {
  static constexpr auto kLoop = &kernels::Kernels::adagrad;
};
template <>
struct LoopOf<kernels::Rule::kRmsprop> {
  static constexpr auto kLoop = &kernels::Kernels::rmsprop;
};
template <>
struct LoopOf<kernels::Rule::kLion> {
  static constexpr auto kLoop = &kernels::Kernels::lion;
};
template <>
struct LoopOf<kernels::Rule::kLars> {
  static constexpr auto kLoop = &kernels::Kernels::lars;
};
template <>
struct LoopOf<kernels::Rule::kLambMoments> {
  static constexpr auto kLoop = &kernels::Kernels::lamb_moments;
};
template <>
struct LoopOf<kernels::Rule::kLambApply> {
  static constexpr auto kLoop = &kernels::Kernels::lamb_apply;
};
template <>
struct LoopOf<kernels::Rule::kValueSquares> {
  static constexpr auto kLoop = &kernels::Kernels::value_squares;
};

template <kernels::Rule kRule, class StepOf>
void apply_rule(const std::vector<Update>& updates, const StepOf& step_of) {
  if (are_on_gpu(updates)) {
    run_on_device(updates.front().device, kRule, /*adds_squares=*/false, device_parts(updates, step_of));
    return note_not_finite(updates);
  }
  for_each_block(updates, [&](const Update& update, const kernels::Block& block) {
    (kernels::kernels().*LoopOf<kRule>::kLoop)(update.layout, block, step_of(update));
  });
}

template <kernels::Rule kRule, class StepOf, class Needs>
std::vector<kernels::Squares> sums_of_rule(const std::vector<Update>& updates, const StepOf& step_of,
                                           const Needs& needs) {
  if (are_on_gpu(updates)) {
    return add_up(updates, run_on_device(updates.front().device, kRule, true, device_parts(updates, step_of)));
  }
  return sums_of_blocks(updates, [&](const Update& update, const kernels::Block& block) {
    if (!needs(update)) return kernels::Squares();
    if constexpr (std::is_same_v<decltype(step_of(update)), kernels::NoStep>) {
      return (kernels::kernels().*LoopOf<kRule>::kLoop)(update.layout, block);
    } else {
      return (kernels::kernels().*LoopOf<kRule>::kLoop)(update.layout, block, step_of(update));
    }
  });
}

// Throws InvalidArgument, naming the entry, unless `given` has exactly the entries of `own`, each with the same shape
// and type. Then copies the entries. Of an entry that ranks divide, it copies only this rank's part.
void load_entries(const std::string& who, const std::vector<NamedTensor>& own, const std::vector<NamedTensor>& given);

}  // namespace reigen::optim
