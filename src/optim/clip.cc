#include "reigen/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "optim/option_checks.h"
#include "optim/passes/blocks.h"
#include "optim/passes/device_pass.h"
#include "optim/passes/gradients.h"
#include "tensor/flat/gradient_rows.h"

namespace reigen::optim {
namespace {

void change_on_gpu(const at::Device& gpu, const Gradients& gradients, double factor, double limit) {
  auto parts = device_parts(gradients);
  for (auto& part : parts) {
    part.block.gradient_factor = factor;
    part.block.gradient_limit = limit;
  }
  run_on_device(gpu, kernels::Rule::kChangeGradients, parts);
}

void change(const std::vector<ParameterRange>& ranges, double factor, double limit) {
  const Gradients gradients = gradients_of(ranges);
  if (const at::Device device = device_of(ranges); device.is_cuda()) {
    change_on_gpu(device, gradients, factor, limit);
  } else {
    for_each_piece(gradients.pieces, [&](std::size_t i) {
      const Piece& piece = gradients.pieces[i];
      if (!gradients.is_own(piece)) return;
      kernels::kernels().change_gradients(
          gradients.layouts[piece.part],
          {.values = gradients.at(piece), .count = piece.count, .gradient_factor = factor, .gradient_limit = limit});
    });
  }
  for (const ParameterRange& range : ranges) {
    for (std::size_t i = 0; i < range.size(); ++i) {
      const bool is_mark = range.share() != nullptr;  // the values that changed are in range.gradients()
      if (range.is_active(i) && !is_mark) range.segments()[i].parameter.grad().unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace

GradientNorm gradient_norm(const std::vector<ParameterRange>& ranges) {
  const Gradients gradients = gradients_of(ranges);
  // The averaging below reads the gradients of all ranks, so every rank must have finished writing its gradients.
  if (!ranges.empty() && awaits_average(ranges.front())) ranges.front().sharing().meet("gradients before their norm");
  std::vector<double> sums(gradients.pieces.size());
  if (const at::Device device = device_of(ranges); device.is_cuda()) {
    const std::vector<kernels::Squares> read = to_host(add_squares(device, gradients));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = read[i].first;
  } else {
    for_each_piece(gradients.pieces, [&](std::size_t i) {
      const Piece& piece = gradients.pieces[i];
      if (!gradients.is_own(piece)) return;
      gradients.average(piece);
      sums[i] = kernels::kernels().squares(gradients.layouts[piece.part], gradients.at(piece), piece.count);
    });
  }
  for (const ParameterRange& range : ranges) {
    if (range.rows()) range.rows()->set_awaits_average(false);
  }
  if (is_divided(ranges)) {
    // Each sum is computed by one rank, and all other ranks have 0 in its place. Adding zeros changes no bit.
    ranges.front().sharing().exchange([&](const Communicator& ranks) {
      ranks.all_reduce(sums.data(), sums.data(), sums.size(), DataType::kFloat64, ReduceOp::kSum,
                       {.tag = "squares of gradients"});
    });
  }
  GradientNorm result;
  double whole = 0;
  double of_boxes = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!gradients.counts(gradients.pieces[i])) continue;
    (gradients.is_of_box(gradients.pieces[i]) ? of_boxes : whole) += sums[i];
  }
  if (!ranges.empty() && ranges.front().box_owners().size() > 1) {
    // All owners have whole gradients, which may differ by rounding. All ranks take those of the first owner.
    const Communicator& owners = ranges.front().box_owners();
    double parts[2] = {owners.rank() == 0 ? whole : 0, of_boxes};
    owners.all_reduce(parts, parts, 2, DataType::kFloat64, ReduceOp::kSum,
                      {.tag = "squares of gradients of all boxes"});
    whole = parts[0];
    of_boxes = parts[1];
  }
  result.sum_of_squares = whole + of_boxes;
  if (!ranges.empty() && ranges.front().stages().size() > 1) {
    const Communicator& stages = ranges.front().stages();
    stages.all_reduce(&result.sum_of_squares, &result.sum_of_squares, 1, DataType::kFloat64, ReduceOp::kSum,
                      {.tag = "squares of gradients of all stages"});
  }
  result.norm = std::sqrt(result.sum_of_squares);
  result.finite = std::isfinite(result.sum_of_squares);
  return result;
}

double clip_factor(double norm, double max_norm) {
  if (!(max_norm > 0)) refuse_option("clip", "max_norm", max_norm, "a number above 0");
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

GradientNorm clip_grad_norm(const std::vector<ParameterRange>& ranges, double max_norm) {
  const GradientNorm norm = gradient_norm(ranges);
  const double factor = clip_factor(norm.norm, max_norm);
  if (factor != 1) change(ranges, factor, std::numeric_limits<double>::infinity());
  return norm;
}

void clip_grad_value(const std::vector<ParameterRange>& ranges, double clip_value) {
  if (!(clip_value > 0)) refuse_option("clip", "clip_value", clip_value, "a number above 0");
  if (is_divided(ranges)) gradient_norm(ranges);  // gradient_norm() averages the gradients
  change(ranges, 1, clip_value);
}

}  // namespace reigen::optim
