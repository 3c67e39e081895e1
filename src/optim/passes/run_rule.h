// Runs a rule of kernels/kernels.h over the updates of a step (range_state.h), where the parameters are: on the host or
// on a GPU.
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "optim/kernels/kernels.h"
#include "optim/passes/device_pass.h"
#include "optim/range_state.h"

namespace reigen::optim {

using BlockWork = std::function<void(const Update&, const kernels::Block&)>;
using BlockSums = std::function<kernels::Squares(const Update&, const kernels::Block&)>;

// For parameters on the host: for_each_block() and sums_of_blocks() run work(update, block) for each block in this
// rank's share. sums_of_blocks() also returns the sums of every update, which include the blocks in the shares of other
// ranks.
void for_each_block(const std::vector<Update>& updates, const BlockWork& work);
std::vector<kernels::Squares> sums_of_blocks(const std::vector<Update>& updates, const BlockSums& work);

// For parameters on a GPU: own_block() returns this rank's share of the parameter. note_not_finite() sets
// Update::not_finite if a gradient is not finite. add_up() returns the sums of every update, which include the chunks
// in the shares of other ranks.
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

// The host's loop for each rule, a member of kernels::Kernels.
template <kernels::Rule>
inline constexpr auto kLoopOf = nullptr;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kSgd> = &kernels::Kernels::sgd;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kAdam> = &kernels::Kernels::adam;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kAdagrad> = &kernels::Kernels::adagrad;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kRmsprop> = &kernels::Kernels::rmsprop;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kLion> = &kernels::Kernels::lion;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kLars> = &kernels::Kernels::lars;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kLambMoments> = &kernels::Kernels::lamb_moments;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kLambApply> = &kernels::Kernels::lamb_apply;
template <>
inline constexpr auto kLoopOf<kernels::Rule::kValueSquares> = &kernels::Kernels::value_squares;

// Runs the rule over this rank's share of all updates. step_of(update) returns the coefficients of the rule. The host
// uses several threads. A GPU gets one kernel for each sequence of updates with the same element types.
template <kernels::Rule kRule, class StepOf>
void apply_rule(const std::vector<Update>& updates, const StepOf& step_of) {
  if (are_on_gpu(updates)) {
    run_on_device(updates.front().device, kRule, device_parts(updates, step_of), {.control = updates.front().control});
    return note_not_finite(updates);
  }
  for_each_block(updates, [&](const Update& update, const kernels::Block& block) {
    (kernels::kernels().*kLoopOf<kRule>)(update.layout, block, step_of(update));
  });
}

// Does the same as apply_rule() for a rule that gives sums of squares. Returns the sums of every update, added in the
// order of its blocks. The sums include the blocks of the other ranks. If needs(update) is false, the caller does not
// use the sums of this update, and the host does not compute them.
template <kernels::Rule kRule, class StepOf, class Needs>
std::vector<kernels::Squares> sums_of_rule(const std::vector<Update>& updates, const StepOf& step_of,
                                           const Needs& needs) {
  if (are_on_gpu(updates)) {
    return add_up(updates, sums_on_device(updates.front().device, kRule, device_parts(updates, step_of)));
  }
  return sums_of_blocks(updates, [&](const Update& update, const kernels::Block& block) {
    if (!needs(update)) return kernels::Squares();
    if constexpr (std::is_same_v<decltype(step_of(update)), kernels::NoStep>) {
      return (kernels::kernels().*kLoopOf<kRule>)(update.layout, block);
    } else {
      return (kernels::kernels().*kLoopOf<kRule>)(update.layout, block, step_of(update));
    }
  });
}

}  // namespace reigen::optim
