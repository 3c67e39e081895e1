#include "reigen/nn/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "nn/fused/once.h"
#include "reigen/comm/call_list.h"
#include "tensor/calls.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Returns the numbers of all dimensions except dimension 1, the channels.
std::vector<std::int64_t> others(const at::Tensor& input) {
  std::vector<std::int64_t> result{0};
  for (std::int64_t d = 2; d < input.dim(); ++d) result.push_back(d);
  return result;
}

// Reshapes a tensor of shape [C] so that it broadcasts against the input, and converts it to the type of the
// statistics.
at::Tensor beside(const at::Tensor& channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return channels.to(statistics_type(input)).view(shape);
}

// Number of StandIn objects (stand_in.h) that live on this thread. While one lives, the statistics do not count the
// samples of this thread.
thread_local int stand_ins = 0;

// The statistics of a batch for each channel, in fp64.
struct Statistics {
  double count = 0;
  at::Tensor mean = {};
  at::Tensor squares = {};  // sum of (x - mean)²
};

Statistics statistics_of(const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const bool counts = channels > 0 && stand_ins == 0;
  Statistics own{.count = static_cast<double>(counts ? input.numel() / channels : 0)};
  if (own.count == 0) {
    own.mean = at::zeros({channels}, at::kDouble);
    own.squares = at::zeros({channels}, at::kDouble);
    return own;
  }
  const at::Tensor x = input.to(statistics_type(input));
  own.mean = x.mean(others(x), false, at::kDouble);
  own.squares = (x - beside(own.mean, x)).square().sum(others(x), false, at::kDouble);
  // beside() rounded the mean to the type of x before the subtraction. This makes the sum of squares too large by count
  // · rounding², which is subtracted here.
  const at::Tensor rounding = own.mean - own.mean.to(x.scalar_type()).to(at::kDouble);
  own.squares -= own.count * rounding.square();
  return own;
}

Statistics combined(const std::vector<double>& all, int ranks, std::int64_t channels) {
  const std::int64_t stride = 2 * channels + 1;
  const at::Tensor table = at::from_blob(const_cast<double*>(all.data()), {ranks, stride}, at::kDouble);
  Statistics sum{.count = 0, .mean = at::zeros({channels}, at::kDouble), .squares = at::zeros({channels}, at::kDouble)};
  for (int q = 0; q < ranks; ++q) {
    const double count = all[static_cast<std::size_t>(q * stride)];
    if (count == 0) continue;
    const at::Tensor mean = table[q].narrow(0, 1, channels);
    const at::Tensor squares = table[q].narrow(0, 1 + channels, channels);
    const at::Tensor apart = mean - sum.mean;
    const double whole = sum.count + count;
    sum.squares = sum.squares + squares + apart.square() * (sum.count * count / whole);
    sum.mean = sum.mean + apart * (count / whole);
    sum.count = whole;
  }
  return sum;
}

Statistics statistics_of_all(const at::Tensor& input, const Communicator& ranks) {
  const Statistics own = statistics_of(input);
  const std::int64_t channels = input.size(1);
  std::vector<double> mine(static_cast<std::size_t>(2 * channels + 1));
  mine[0] = own.count;
  const at::Tensor mean = own.mean.cpu().contiguous();
  const at::Tensor squares = own.squares.cpu().contiguous();
  std::copy_n(mean.const_data_ptr<double>(), channels, mine.begin() + 1);
  std::copy_n(squares.const_data_ptr<double>(), channels, mine.begin() + 1 + channels);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(mine.data(), all.data(), mine.size(), DataType::kFloat64, {.tag = "statistics of a batch"});
  Statistics sum = combined(all, ranks.size(), channels);
  sum.mean = sum.mean.to(input.device());
  sum.squares = sum.squares.to(input.device());
  return sum;
}

// What backward needs besides tensors, in a class that an AutogradContext can save.
struct Kept : torch::CustomClassHolder {
  Kept(Communicator its_ranks, double its_count) : ranks(std::move(its_ranks)), count(its_count) {}
  Communicator ranks;
  double count;
  bool is_stand_in = stand_ins > 0;
};

struct Normalise : torch::autograd::Function<Normalise> {
  // weight and bias are optional, because apply() takes no undefined tensor.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& scale,
                            c10::intrusive_ptr<Kept> kept) {
    context->save_for_backward({input, weight.value_or(at::Tensor()), mean, scale});
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    at::Tensor output = (input.to(statistics_type(input)) - beside(mean, input)) * beside(scale, input);
    if (weight) output = output * beside(*weight, input) + beside(*bias, input);
    return output.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    variable_list result = derivatives(context, saved, gradients[0]);
    // Autograd would compute wrong second derivatives: it treats the statistics as constants, and does not see the sums
    // over the ranks.
    fused::refuse_second_derivatives(
        result, {gradients[0], saved[0], saved[1]},
        {.what = "[sync_batch_norm] no second derivatives in training",
         .got = "a derivative of what the layer's backward gave with create_graph",
         .fix = "torch::nn::BatchNorm, or the layer in eval(), where a gradient is differentiated (gradient penalty); "
                "else no create_graph"});
    return result;
  }

  static variable_list derivatives(AutogradContext* context, const variable_list& saved, const at::Tensor& gradient) {
    const at::NoGradGuard no_grad;
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const auto capsule = context->saved_data["kept"].toCapsule();
    auto& kept = static_cast<Kept&>(*capsule);
    const at::Tensor x = (input.to(statistics_type(input)) - beside(saved[2], input)) * beside(saved[3], input);
    const at::Tensor dy = gradient.to(statistics_type(input));
    const at::Tensor sum = dy.sum(others(input), false, at::kDouble);
    const at::Tensor product = (dy * x).sum(others(input), false, at::kDouble);
    const at::Tensor both = at::cat({sum, product});
    CallList calls;
    calls.all_reduce(both.const_data_ptr(), both.mutable_data_ptr(), static_cast<std::size_t>(both.numel()),
                     DataType::kFloat64, ReduceOp::kSum,
                     {.tag = "gradients of a batch's statistics", .after = tensor::stream_of(both)});
    tensor::run_calls(kept.ranks, calls, both);
    const auto halves = (both / kept.count).chunk(2);
    at::Tensor factor = saved[3];
    if (weight.defined()) factor = factor * weight.to(at::kDouble);
    // A stand-in sample (stand_in.h) does not count in the statistics, so it gets no gradient from the statistics.
    const at::Tensor own = kept.is_stand_in ? dy : dy - beside(halves[0], input) - x * beside(halves[1], input);
    const at::Tensor dx = own * beside(factor, input);
    variable_list result{dx.to(input.scalar_type()), {}, {}, {}, {}, {}};
    if (weight.defined()) {
      result[1] = product.to(weight.scalar_type());
      result[2] = sum.to(weight.scalar_type());
    }
    return result;
  }
};

}  // namespace

StandIn::StandIn() { ++stand_ins; }
StandIn::~StandIn() { --stand_ins; }

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options, Communicator ranks)
    : options_(options), ranks_(std::move(ranks)) {
  REIGEN_CHECK(options.features > 0, "[sync_batch_norm] features is out of range\n  got: {}   expected: at least 1",
               options.features);
  REIGEN_CHECK(options.eps >= 0 && std::isfinite(options.eps),
               "[sync_batch_norm] eps is out of range\n  got: {}   expected: a finite number of at least 0",
               options.eps);
  REIGEN_CHECK(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1),
               "[sync_batch_norm] momentum is out of range\n  got: {}   expected: 0 to 1, or none",
               options.momentum.value_or(0));
  if (options.affine) {
    weight = register_parameter("weight", at::ones({options.features}));
    bias = register_parameter("bias", at::zeros({options.features}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", at::zeros({options.features}));
    running_var = register_buffer("running_var", at::ones({options.features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  REIGEN_CHECK(input.dim() >= 2 && input.dim() <= 5 && input.size(1) == options_.features,
               "[sync_batch_norm] the input does not fit\n  got: {} dimensions, {} channels   expected: 2 to 5, {}",
               input.dim(), input.dim() >= 2 ? input.size(1) : 0, options_.features);
  if (!is_training()) {
    return at::batch_norm(input, weight, bias, running_mean, running_var, !running_mean.defined(), 0, options_.eps,
                          false);
  }
  const Statistics batch = statistics_of_all(input.detach(), ranks_);
  REIGEN_CHECK(batch.count >= 2,
               "[sync_batch_norm] too few values a channel to train with\n  got: {} on all ranks together   expected: "
               "at least 2",
               batch.count);
  const at::Tensor variance = batch.squares / batch.count;
  if (running_mean.defined()) {
    at::NoGradGuard no_grad;
    num_batches_tracked += 1;
    const double momentum = options_.momentum.value_or(1 / num_batches_tracked.item<double>());
    const at::Tensor unbiased = batch.squares / (batch.count - 1);
    running_mean.mul_(1 - momentum).add_(batch.mean.to(running_mean.scalar_type()), momentum);
    running_var.mul_(1 - momentum).add_(unbiased.to(running_var.scalar_type()), momentum);
  }
  const auto given = [](const at::Tensor& parameter) {
    return parameter.defined() ? std::make_optional(parameter) : std::nullopt;
  };
  return Normalise::apply(input, given(weight), given(bias), batch.mean, (variance + options_.eps).rsqrt(),
                          c10::make_intrusive<Kept>(ranks_, batch.count));
}

}  // namespace reigen::nn
