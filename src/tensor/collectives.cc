#include "reigen/tensor/collectives.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "reigen/base/error.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/differentiable.h"
#include "tensor/memory/shared_tensor.h"
#include "tensor/shape_check.h"

namespace reigen::tensor {
namespace {

using Tensors = std::vector<at::Tensor>;
using Rows = std::vector<std::int64_t>;  // one number per rank

std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

// A contiguous tensor with the same values in memory, without a pending negation (neg bit).
at::Tensor plain_memory(const at::Tensor& tensor) { return tensor.resolve_neg().contiguous(); }

bool is_plain_memory(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_neg(); }

void check_options(const char* operation, const Tensors& tensors, const ReduceOptions& options) {
  if (options.prescale == 1 && options.postscale == 1) return;
  if (!std::isfinite(options.prescale) || !std::isfinite(options.postscale)) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] a scale is not a finite number", operation),
                                 .got = fmt::format("prescale {}, postscale {}", options.prescale, options.postscale),
                                 .fix = "leave both at 1 unless sums would overflow"});
  }
  for (const at::Tensor& tensor : tensors) {
    if (at::isFloatingType(tensor.scalar_type())) continue;
    throw InvalidArgument(
        Report{.what = fmt::format("[{}] only floating point can be scaled", operation),
               .got = fmt::format("{}, prescale {}, postscale {}", c10::toString(tensor.scalar_type()),
                                  options.prescale, options.postscale),
               .expected = "both scales 1",
               .fix = "convert the tensor first, for example with .to(torch::kFloat32)"});
  }
}

// Returns the options of the reduction that the backward of a reduction with `options` makes.
ReduceOptions adjoint(const char* operation, const ReduceOptions& options) {
  if (options.op != ReduceOp::kSum && options.op != ReduceOp::kAvg) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] this reduction has no gradient", operation),
                                 .got = comm::name_of(options.op),
                                 .expected = "sum or avg",
                                 .fix = "detach() the tensor before the call"});
  }
  return {.op = options.op, .prescale = options.postscale, .postscale = options.prescale};
}

// output = postscale · call(prescale · input). `input` and `output` may be the same tensor.
template <class Call>
void reduce_scaled(const at::Tensor& input, const at::Tensor& output, const ReduceOptions& options, std::string tag,
                   const Call& call) {
  const bool sum = options.op == ReduceOp::kSum;
  const at::Tensor source = options.prescale == 1 || sum ? input : input * options.prescale;
  const bool moved = !source.is_same(input) && input.is_same(output);
  if (moved) output.copy_(source);
  call(moved ? output.const_data_ptr() : source.const_data_ptr(), output.mutable_data_ptr(),
       comm::CallOptions{.tag = std::move(tag), .factor = sum ? options.prescale : 1, .after = stream_of(output)});
  if (options.postscale != 1) output.mul_(options.postscale);
}

void reduce_into(const at::Tensor& input, const at::Tensor& output, const Communicator& world,
                 const ReduceOptions& options, const std::string& tag) {
  reduce_scaled(input, output, options, tag, [&](const void* from, void* to, const comm::CallOptions& call) {
    comm::CallList calls;
    calls.all_reduce(from, to, count_of(input), to_data_type(input.scalar_type()), options.op, call);
    run_calls(world, calls, input);
  });
}

// Reduces several tensors of one type and device through one flat buffer. On the host the buffer is in memory that all
// ranks of this machine can reach. On a GPU it is in LibTorch's memory, which may be dropped while its stream still
// reads it.
void reduce_fused(const Tensors& inputs, const Tensors& outputs, const Communicator& world,
                  const ReduceOptions& options, const std::string& tag) {
  std::int64_t count = 0;
  for (const at::Tensor& input : inputs) count += input.numel();
  const at::Tensor flat = inputs[0].device().is_cpu() ? shared_tensor(world, count, inputs[0].scalar_type())
                                                      : at::empty({count}, inputs[0].options());
  std::int64_t begin = 0;
  for (const at::Tensor& input : inputs) {
    flat.narrow(0, begin, input.numel()).view(input.sizes()).copy_(input);
    begin += input.numel();
  }
  reduce_into(flat, flat, world, options, tag);
  begin = 0;
  for (const at::Tensor& output : outputs) {
    output.copy_(flat.narrow(0, begin, output.numel()).view(output.sizes()));
    begin += output.numel();
  }
}

// Makes one reduction for each element type and device, in the order of their first tensors. The reductions are in
// place if outputs and inputs are the same tensors.
void reduce_all(const Tensors& inputs, const Tensors& outputs, const Communicator& world, const ReduceOptions& options,
                const std::string& tag) {
  using Kind = std::pair<at::ScalarType, at::DeviceType>;
  std::vector<Kind> order;
  std::map<Kind, std::pair<Tensors, Tensors>> of_kind;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Kind kind(inputs[i].scalar_type(), inputs[i].device().type());
    if (of_kind.find(kind) == of_kind.end()) order.push_back(kind);
    of_kind[kind].first.push_back(inputs[i]);
    of_kind[kind].second.push_back(outputs[i]);
  }
  for (const Kind& kind : order) {
    const auto& [from, to] = of_kind[kind];
    if (from.size() > 1 || !is_plain_memory(to[0])) {
      reduce_fused(from, to, world, options, tag);
    } else {
      reduce_into(from[0].is_same(to[0]) ? to[0] : plain_memory(from[0]), to[0], world, options, tag);
      if (from[0].is_same(to[0])) to[0].unsafeGetTensorImpl()->bump_version();  // autograd does not see such writes
    }
  }
}

Tensors reduced(const char* operation, const Tensors& tensors, const Communicator& world,
                const ReduceOptions& options) {
  check_tensors(operation, tensors, world);
  check_options(operation, tensors, options);
  const std::string tag = shapes_tag(tensors);
  const auto forward = [=](const Tensors& inputs) {
    Tensors outputs;
    for (const at::Tensor& input : inputs) outputs.push_back(at::empty(input.sizes(), input.options()));
    reduce_all(inputs, outputs, world, options, tag);
    return outputs;
  };
  const auto backward = [=](const Tensors& gradients) {
    return reduced(operation, gradients, world, adjoint(operation, options));
  };
  return apply_differentiable(tensors, forward, backward);
}

void reduce_in_place(const char* operation, const Tensors& tensors, Communicator world, const ReduceOptions& options) {
  check_tensors(operation, tensors, world);
  check_options(operation, tensors, options);
  check_no_gradient(operation, tensors);
  reduce_all(tensors, tensors, world, options, shapes_tag(tensors));
}

// ---- Calls on rows (the first dimension of a tensor), of which each rank has its own number

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  Rows shape = like.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, like.options());
}

std::int64_t sum_of(const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }

std::vector<std::size_t> counts_of(const Rows& rows, const at::Tensor& like) {
  std::int64_t row = 1;
  for (std::int64_t d = 1; d < like.dim(); ++d) row *= like.size(d);
  std::vector<std::size_t> counts;
  for (const std::int64_t number : rows) counts.push_back(static_cast<std::size_t>(number * row));
  return counts;
}

at::Tensor scatter_rows(const at::Tensor& tensor, const Rows& rows, const Communicator& world,
                        const ReduceOptions& options, const std::string& tag);

// Returns the rows of all ranks, one rank after the other, times `scale`. rows[r] is the number of rows of rank r.
at::Tensor gather_rows(const at::Tensor& tensor, const Rows& rows, const Communicator& world, double scale = 1) {
  const auto forward = [=](const Tensors& inputs) -> Tensors {
    const at::Tensor input = plain_memory(inputs[0]);
    const at::Tensor output = empty_rows(input, sum_of(rows));
    comm::CallList calls;
    calls.all_gather_v(input.const_data_ptr(), output.mutable_data_ptr(), counts_of(rows, input),
                       to_data_type(input.scalar_type()), {.after = stream_of(input)});
    run_calls(world, calls, input);
    if (scale != 1) output.mul_(scale);
    return {output};
  };
  const auto backward = [=](const Tensors& gradients) -> Tensors {
    return {scatter_rows(gradients[0], rows, world, {.prescale = scale}, "")};
  };
  return apply_differentiable({tensor}, forward, backward)[0];
}

// Returns this rank's rows of the sum or average over the ranks' tensors.
at::Tensor scatter_rows(const at::Tensor& tensor, const Rows& rows, const Communicator& world,
                        const ReduceOptions& options, const std::string& tag) {
  const auto forward = [=](const Tensors& inputs) -> Tensors {
    const at::Tensor input = plain_memory(inputs[0]);
    const at::Tensor output = empty_rows(input, rows[static_cast<std::size_t>(world.rank())]);
    reduce_scaled(input, output, options, tag, [&](const void* from, void* to, const comm::CallOptions& call) {
      comm::CallList calls;
      calls.reduce_scatter_v(from, to, counts_of(rows, input), to_data_type(input.scalar_type()), options.op, call);
      run_calls(world, calls, input);
    });
    return {output};
  };
  const auto backward = [=](const Tensors& gradients) -> Tensors {
    const ReduceOptions back = adjoint("reduce_scatter", options);
    const at::Tensor own = back.prescale == 1 ? gradients[0] : gradients[0] * back.prescale;
    const double share = back.op == ReduceOp::kAvg ? 1.0 / world.size() : 1.0;
    return {gather_rows(own, rows, world, back.postscale * share)};
  };
  return apply_differentiable({tensor}, forward, backward)[0];
}

// Overwrites the tensor's values with those of rank `root`.
void broadcast_memory(const at::Tensor& tensor, int root, const Communicator& world, const std::string& tag) {
  comm::CallList calls;
  calls.broadcast(tensor.mutable_data_ptr(), count_of(tensor), to_data_type(tensor.scalar_type()), root,
                  {.tag = tag, .after = stream_of(tensor)});
  run_calls(world, calls, tensor);
}

at::Tensor exchange_rows(const at::Tensor& tensor, const Rows& leave, const Rows& arrive, const Communicator& world) {
  const auto forward = [=](const Tensors& inputs) -> Tensors {
    const at::Tensor input = plain_memory(inputs[0]);
    const at::Tensor output = empty_rows(input, sum_of(arrive));
    comm::CallList calls;
    calls.all_to_all_v(input.const_data_ptr(), counts_of(leave, input), output.mutable_data_ptr(),
                       counts_of(arrive, input), to_data_type(input.scalar_type()), {.after = stream_of(input)});
    run_calls(world, calls, input);
    return {output};
  };
  const auto backward = [=](const Tensors& gradients) -> Tensors {
    return {exchange_rows(gradients[0], arrive, leave, world)};
  };
  return apply_differentiable({tensor}, forward, backward)[0];
}

Rows even_rows(std::int64_t rows, int ranks) {
  Rows result;
  for (int q = 0; q < ranks; ++q) result.push_back(rows / ranks + (q < rows % ranks ? 1 : 0));
  return result;
}

Rows checked_splits(const at::Tensor& tensor, const Rows& splits, int ranks) {
  if (splits.empty() && tensor.size(0) % ranks == 0) return even_rows(tensor.size(0), ranks);
  bool fit = splits.size() == static_cast<std::size_t>(ranks) && sum_of(splits) == tensor.size(0);
  for (const std::int64_t one : splits) fit = fit && one >= 0;
  if (fit) return splits;
  throw InvalidArgument(
      Report{.what = "[all_to_all] the splits do not fit the rows",
             .got = fmt::format("[{}] for {} rows", fmt::join(splits, ", "), tensor.size(0)),
             .expected = fmt::format(
                 "{} numbers of at least 0 that add up to the rows; or none, and a multiple of {} rows", ranks, ranks),
             .fix = "give one number of rows for every rank"});
}

// ---- Sum on one rank

at::Tensor sum_at_root(const at::Tensor& tensor, int root, const Communicator& world) {
  const auto forward = [=](const Tensors& inputs) -> Tensors {
    const at::Tensor input = plain_memory(inputs[0]);
    const at::Tensor output = at::zeros(input.sizes(), input.options());
    comm::CallList calls;
    calls.reduce(input.const_data_ptr(), world.rank() == root ? output.mutable_data_ptr() : nullptr, count_of(input),
                 to_data_type(input.scalar_type()), ReduceOp::kSum, root, {.after = stream_of(input)});
    run_calls(world, calls, input);
    return {output};
  };
  const auto backward = [=](const Tensors& gradients) -> Tensors { return {broadcast(gradients[0], root, world)}; };
  return apply_differentiable({tensor}, forward, backward)[0];
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& tensor, Communicator world, const ReduceOptions& options) {
  return reduced("all_reduce", {tensor}, world, options)[0];
}

Tensors grouped_all_reduce(const Tensors& tensors, Communicator world, const ReduceOptions& options) {
  return reduced("grouped_all_reduce", tensors, world, options);
}

void all_reduce_(const at::Tensor& tensor, Communicator world, const ReduceOptions& options) {
  reduce_in_place("all_reduce_", {tensor}, std::move(world), options);
}

void grouped_all_reduce_(const Tensors& tensors, Communicator world, const ReduceOptions& options) {
  reduce_in_place("grouped_all_reduce_", tensors, std::move(world), options);
}

at::Tensor all_gather(const at::Tensor& tensor, Communicator world) {
  check_tensors("all_gather", {tensor}, world);
  const Rows rows = rows_of_all("all_gather", tensor, world);
  return gather_rows(tensor, rows, world);
}

at::Tensor broadcast(const at::Tensor& tensor, int root, Communicator world) {
  check_tensors("broadcast", {tensor}, world);
  const std::string tag = shapes_tag({tensor});
  const auto forward = [=](const Tensors& inputs) -> Tensors {
    const at::Tensor output = inputs[0].resolve_neg().clone(at::MemoryFormat::Contiguous);
    broadcast_memory(output, root, world, tag);
    return {output};
  };
  const auto backward = [=](const Tensors& gradients) -> Tensors { return {sum_at_root(gradients[0], root, world)}; };
  return apply_differentiable({tensor}, forward, backward)[0];
}

void broadcast_(const at::Tensor& tensor, int root, Communicator world) {
  check_tensors("broadcast_", {tensor}, world);
  check_no_gradient("broadcast_", {tensor});
  if (!is_plain_memory(tensor)) {
    tensor.copy_(broadcast(tensor, root, std::move(world)));
    return;
  }
  broadcast_memory(tensor, root, world, shapes_tag({tensor}));
  tensor.unsafeGetTensorImpl()->bump_version();
}

at::Tensor reduce_scatter(const at::Tensor& tensor, Communicator world, const ReduceOptions& options) {
  check_tensors("reduce_scatter", {tensor}, world);
  check_options("reduce_scatter", {tensor}, options);
  check_has_rows("reduce_scatter", tensor);
  return scatter_rows(tensor, even_rows(tensor.size(0), world.size()), world, options, shapes_tag({tensor}));
}

AllToAllResult all_to_all(const at::Tensor& tensor, const Rows& splits, Communicator world) {
  check_tensors("all_to_all", {tensor}, world);
  check_has_rows("all_to_all", tensor);
  const Rows leave = checked_splits(tensor, splits, world.size());
  rows_of_all("all_to_all", tensor, world);
  Rows arrive(leave.size());
  world.all_to_all(leave.data(), arrive.data(), 1, DataType::kInt64, {.tag = "splits"});
  const at::Tensor received = exchange_rows(tensor, leave, arrive, world);
  return {.tensor = received, .received_splits = arrive};
}

}  // namespace reigen::tensor
