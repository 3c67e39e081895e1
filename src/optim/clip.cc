#include "reigen/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "optim/option_checks.h"
#include "optim/passes/blocks.h"
#include "optim/passes/device_pass.h"
#include "tensor/flat/gradient_rows.h"

namespace reigen::optim {
namespace {

struct Place {
  const ParameterRange* range = nullptr;
  std::size_t segment = 0;
};

struct Gradients {
  std::vector<void*> data;
  std::vector<Place> places;
  std::vector<kernels::Layout> layouts;
  std::vector<std::size_t> element_sizes;
  std::vector<Piece> pieces;

  void* at(const Piece& piece) const {
    return static_cast<std::byte*>(data[piece.part]) +
           static_cast<std::size_t>(piece.first) * element_sizes[piece.part];
  }
  // Whether this rank computes with the piece. If each rank has only its share of the mean, other ranks compute with
  // the other pieces.
  bool is_own(const Piece& piece) const {
    const auto& [range, segment] = places[piece.part];
    const std::int64_t first = range->segments()[segment].offset + piece.first;
    return !range->divides_averages() || (first >= range->begin() && first < range->end());
  }
  void average(const Piece& piece) const {
    const auto& [range, segment] = places[piece.part];
    if (awaits_average(*range)) {
      range->rows()->average(segment, range->gradient_slot(segment), piece.first, piece.count);
    }
  }
};

// Whether each rank has only its share of the mean.
bool is_divided(const std::vector<ParameterRange>& ranges) {
  return !ranges.empty() && ranges.front().divides_averages();
}

Gradients gradients_of(const std::vector<ParameterRange>& ranges) {
  check_shared_alike("clip", ranges);
  Gradients result;
  std::vector<std::int64_t> sizes;
  for (const ParameterRange& range : ranges) {
    const kernels::Layout layout = layout_of("clip", range);
    for (std::size_t i = 0; i < range.size(); ++i) {
      void* data = gradient_data(range, i);
      if (data == nullptr) continue;
      result.data.push_back(data);
      result.places.push_back({&range, i});
      result.layouts.push_back(layout);
      result.element_sizes.push_back(range.values().dtype().itemsize());
      sizes.push_back(range.segments()[i].numel);
    }
  }
  result.pieces = cut(sizes);
  return result;
}

at::Device device_of(const std::vector<ParameterRange>& ranges) {
  return ranges.empty() ? at::Device(at::kCPU) : ranges.front().values().device();
}

// The gradients of which this rank computes, as a GPU's kernels take them: one part for each parameter. `own`: the
// pieces of this rank, those of a parameter one after the other.
std::vector<DevicePart<kernels::NoStep>> device_parts(const Gradients& gradients, const std::vector<Piece>& own) {
  std::vector<DevicePart<kernels::NoStep>> parts;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Piece& piece = own[i];
    if (i > 0 && own[i - 1].part == piece.part) {
      parts.back().block.count += piece.count;
      continue;
    }
    parts.push_back({.layout = gradients.layouts[piece.part],
                     .block = {.values = gradients.at(piece), .gradients = gradients.at(piece), .count = piece.count}});
  }
  return parts;
}

std::vector<Piece> own_pieces(const Gradients& gradients) {
  std::vector<Piece> own = gradients.pieces;
  std::erase_if(own, [&](const Piece& piece) { return !gradients.is_own(piece); });
  return own;
}

void change_on_gpu(const at::Device& gpu, const Gradients& gradients, double factor, double limit) {
  auto parts = device_parts(gradients, own_pieces(gradients));
  for (auto& part : parts) {
    part.block.gradient_factor = factor;
    part.block.gradient_limit = limit;
  }
  run_on_device(gpu, kernels::Rule::kChangeGradients, /*adds_squares=*/false, parts);
}

// sums[i] = the sum of the squares of piece i, if this rank computes it.
void add_squares_on_gpu(const at::Device& gpu, const Gradients& gradients, std::vector<double>& sums) {
  const auto squares = run_on_device(gpu, kernels::Rule::kSquares, /*adds_squares=*/true,
                                     device_parts(gradients, own_pieces(gradients)));
  auto next = squares.begin();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (gradients.is_own(gradients.pieces[i])) sums[i] = (next++)->first;
  }
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
      if (range.is_active(i)) range.segments()[i].parameter.grad().unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace

GradientNorm gradient_norm(const std::vector<ParameterRange>& ranges) {
  const Gradients gradients = gradients_of(ranges);
  // Other ranks are about to read these gradients. Before that, all ranks must have finished writing theirs.
  if (!ranges.empty() && awaits_average(ranges.front())) ranges.front().sharing().meet("gradients before their norm");
  std::vector<double> sums(gradients.pieces.size());
  if (const at::Device device = device_of(ranges); device.is_cuda()) {
    add_squares_on_gpu(device, gradients, sums);
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
    // Each sum comes from one rank. Adding the zeros of the other ranks changes no bit.
    ranges.front().sharing().exchange([&](const Communicator& ranks) {
      ranks.all_reduce(sums.data(), sums.data(), sums.size(), DataType::kFloat64, ReduceOp::kSum,
                       {.tag = "squares of gradients"});
    });
  }
  GradientNorm result;
  for (const double sum : sums) result.sum_of_squares += sum;
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
