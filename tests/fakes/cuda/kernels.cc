// The kernels of the plug-in, computed on the host when the stream reaches them.
#include "device/kernels.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/reduce/reduce.h"
#include "fakes/cuda/device.h"
#include "fakes/cuda/model_kernels.h"
#include "fakes/cuda/stand_in.h"
#include "optim/kernels/kernels.h"

namespace reigen::device {

namespace {

namespace stand_in = reigen::testing::stand_in;

int reduce(const ReduceCall* call, void* stream) {
  if (call->input_count > kReduceRanks || call->output_count > kReduceRanks) return cudaErrorInvalidValue;
  const auto type = static_cast<comm::DataType>(call->type);
  const auto op = static_cast<comm::ReduceOp>(call->op);
  const std::size_t bytes = call->count * comm::size_of(type);
  const int device = stand_in::queue_of(static_cast<cudaStream_t>(stream)).device();
  std::vector<const void*> inputs(call->inputs, call->inputs + call->input_count);
  std::vector<void*> outputs(call->outputs, call->outputs + call->output_count);
  for (const void* input : inputs) stand_in::require_memory(input, bytes, device, "an input of a reduction");
  for (const void* output : outputs) stand_in::require_memory(output, bytes, device, "an output of a reduction");
  stand_in::counts(device).sums += 1;
  std::vector<double> factors;
  if (call->factors != nullptr) factors.assign(call->factors, call->factors + call->input_count);
  stand_in::queue_of(static_cast<cudaStream_t>(stream)).push([=, copy = *call] {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const void* input : inputs) from.push_back(stand_in::reach(input));
    for (const void* output : outputs) to.push_back(stand_in::reach(output));
    comm::reduce::run({.inputs = from.data(),
                       .outputs = to.data(),
                       .input_count = copy.input_count,
                       .output_count = copy.output_count,
                       .count = copy.count,
                       .type = type,
                       .op = op,
                       .factors = factors.empty() ? nullptr : factors.data(),
                       .divisor = copy.divisor});
  });
  return cudaSuccess;
}

using namespace reigen::optim::kernels;

// One chunk of a parameter, whose addresses are those that the host can use.
template <typename Step>
Squares run_rule(Rule rule, Layout layout, const Block& block, const Step& step) {
  const optim::kernels::Kernels& loops = portable::kernels();
  if constexpr (std::is_same_v<Step, SgdStep>) loops.sgd(layout, block, step);
  if constexpr (std::is_same_v<Step, AdamStep>) loops.adam(layout, block, step);
  if constexpr (std::is_same_v<Step, AdagradStep>) loops.adagrad(layout, block, step);
  if constexpr (std::is_same_v<Step, RmspropStep>) loops.rmsprop(layout, block, step);
  if constexpr (std::is_same_v<Step, LionStep>) loops.lion(layout, block, step);
  if constexpr (std::is_same_v<Step, LarsStep>) loops.lars(layout, block, step);
  if constexpr (std::is_same_v<Step, LambStep>) {
    if (rule == Rule::kLambMoments) return loops.lamb_moments(layout, block, step);
    loops.lamb_apply(layout, block, step);
  }
  if constexpr (std::is_same_v<Step, AverageStep>) {
    loops.average(layout, block.states[0], block.values, block.count, step.share);
  }
  if constexpr (std::is_same_v<Step, NoStep>) {
    if (rule == Rule::kValueSquares) return loops.value_squares(layout, block);
    if (rule == Rule::kSquares) return {loops.squares(layout, block.gradients, block.count), 0};
    if (rule == Rule::kFinite) return {loops.finite(layout, block.gradients, block.count) ? 0.0 : NAN, 0};
    loops.change_gradients(layout, block);
  }
  return {};
}

void require(const void* data, std::int64_t bytes, int device, const char* what) {
  if (data != nullptr) stand_in::require_memory(data, static_cast<std::size_t>(bytes), device, what);
}

template <typename Step>
void run_items(const OptimizeCall& call, int device) {
  const auto layout = static_cast<Layout>(call.layout);
  const Sizes sizes = sizes_of(layout);
  const auto* items = reinterpret_cast<const Item<Step>*>(stand_in::reach(call.items));
  auto* squares = call.squares == nullptr ? nullptr : reinterpret_cast<double*>(stand_in::reach(call.squares));
  const auto* control =
      call.control == nullptr ? nullptr : reinterpret_cast<const StepControl*>(stand_in::reach(call.control));
  if (control != nullptr && control->stopped != 0) return;
  std::int64_t chunk = 0;
  for (int i = 0; i < call.count; ++i) {
    Block all = items[i].block;
    if (control != nullptr) all.gradient_factor *= control->factor;
    if (items[i].first_chunk != chunk) stand_in::die("an item of an optimizer's call begins at another chunk");
    require(all.values, all.count * sizes.value, device, "values of an optimizer");
    require(all.gradients, all.count * sizes.value, device, "gradients of an optimizer");
    require(all.masters, all.count * static_cast<std::int64_t>(sizeof(float)), device, "masters of an optimizer");
    const auto reach = [](auto*& data) {
      if (data != nullptr) data = stand_in::reach(data);
    };
    for (void*& state : all.states) {
      require(state, all.count * sizes.state, device, "states of an optimizer");
      reach(state);
    }
    reach(all.values);
    reach(all.gradients);
    reach(all.masters);
    for (std::int64_t first = 0; first < all.count; first += call.chunk_elements, ++chunk) {
      const Block block = slice(sizes, all, first, std::min<std::int64_t>(call.chunk_elements, all.count - first));
      const Squares sums = run_rule(static_cast<Rule>(call.rule), layout, block, items[i].step);
      if (squares == nullptr) continue;
      const std::int64_t place = items[i].first_sum + chunk - items[i].first_chunk;
      require(call.squares + 2 * place, sizeof(Squares), device, "squares of an optimizer");
      squares[2 * place] = sums.first;
      squares[2 * place + 1] = sums.second;
    }
  }
  if (chunk != call.chunks) stand_in::die("an optimizer's call has another number of chunks than its items");
}

int optimize(const OptimizeCall* call, void* stream) {
  if (call->chunks == 0) return cudaSuccess;
  stand_in::Queue& queue = stand_in::queue_of(static_cast<cudaStream_t>(stream));
  const auto rule = static_cast<Rule>(call->rule);
  const bool is_of_norm = rule == Rule::kSquares || rule == Rule::kFinite;
  (is_of_norm ? stand_in::counts(queue.device()).norms : stand_in::counts(queue.device()).updates) += 1;
  queue.push([copy = *call, device = queue.device()] {
    const auto with = [&]<typename Step>(Step) {
      require(copy.items, copy.count * static_cast<std::int64_t>(sizeof(Item<Step>)), device, "items of an optimizer");
      run_items<Step>(copy, device);
    };
    require(copy.control, sizeof(StepControl), device, "the control of a step");
    switch (static_cast<Rule>(copy.rule)) {
      case Rule::kSgd: return with(SgdStep{});
      case Rule::kAdam: return with(AdamStep{});
      case Rule::kAdagrad: return with(AdagradStep{});
      case Rule::kRmsprop: return with(RmspropStep{});
      case Rule::kLion: return with(LionStep{});
      case Rule::kLars: return with(LarsStep{});
      case Rule::kLambMoments:
      case Rule::kLambApply: return with(LambStep{});
      case Rule::kValueSquares:
      case Rule::kSquares:
      case Rule::kFinite:
      case Rule::kChangeGradients: return with(NoStep{});
      case Rule::kAverage: return with(AverageStep{});
    }
  });
  return cudaSuccess;
}

// Adds chunk after chunk, as the host does. A GPU adds in another order.
int finish_norm(const FinishNormCall* call, void* stream) {
  stand_in::Queue& queue = stand_in::queue_of(static_cast<cudaStream_t>(stream));
  stand_in::counts(queue.device()).norms += 1;
  queue.push([copy = *call, device = queue.device()] {
    require(copy.squares, copy.count * static_cast<std::int64_t>(sizeof(Squares)), device, "squares of a norm");
    require(copy.control, sizeof(StepControl), device, "the control of a step");
    const auto* chunks = reinterpret_cast<const Squares*>(stand_in::reach(copy.squares));
    auto* control = reinterpret_cast<StepControl*>(stand_in::reach(copy.control));
    control->sum_of_squares = 0;
    for (std::int64_t i = 0; i < copy.count; ++i) control->sum_of_squares += chunks[i].first;
    const double factor = copy.max_norm > 0 ? copy.max_norm / (std::sqrt(control->sum_of_squares) + 1e-6) : 1;
    control->factor = factor > 1 ? 1 : factor;
    if (!std::isfinite(control->sum_of_squares)) control->stopped = 1;
  });
  return cudaSuccess;
}

}  // namespace

const device::Kernels& kernels() {
  static const device::Kernels kTable = [] {
    device::Kernels table{};
    table.reduce = &reduce;
    table.optimize = &optimize;
    table.finish_norm = &finish_norm;
    stand_in::add_model_kernels(table);
    return table;
  }();
  return kTable;
}

const std::string& kernels_path() {
  static const std::string kPath = "a stand-in";
  return kPath;
}

}  // namespace reigen::device
