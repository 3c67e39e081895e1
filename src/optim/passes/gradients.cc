#include "optim/passes/gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensor/flat/gradient_rows.h"

namespace reigen::optim {

void* Gradients::at(const Piece& piece) const {
  return static_cast<std::byte*>(data[piece.part]) + static_cast<std::size_t>(piece.first) * element_sizes[piece.part];
}

bool Gradients::is_own(const Piece& piece) const {
  const auto& [range, segment] = places[piece.part];
  const std::int64_t first = range->segments()[segment].offset + piece.first;
  return !range->divides_averages() || (first >= range->begin() && first < range->end());
}

bool Gradients::is_of_box(const Piece& piece) const {
  const auto& [range, segment] = places[piece.part];
  return range->segments()[segment].box.has_value();
}

bool Gradients::counts(const Piece& piece) const {
  const auto& [range, segment] = places[piece.part];
  return range->segments()[segment].counts;
}

void Gradients::average(const Piece& piece) const {
  const auto& [range, segment] = places[piece.part];
  if (awaits_average(*range)) {
    range->rows()->average(segment, range->gradient_slot(segment), piece.first, piece.count);
  }
}

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

std::vector<DevicePart<kernels::NoStep>> device_parts(const Gradients& gradients) {
  std::vector<DevicePart<kernels::NoStep>> parts;
  const Piece* last = nullptr;  // the piece that the last part ends with
  for (std::size_t i = 0; i < gradients.pieces.size(); ++i) {
    const Piece& piece = gradients.pieces[i];
    if (!gradients.is_own(piece)) continue;
    if (last != nullptr && last->part == piece.part) {
      parts.back().block.count += piece.count;
    } else {
      parts.push_back({.layout = gradients.layouts[piece.part],
                       .block = {.values = gradients.at(piece), .gradients = gradients.at(piece), .count = piece.count},
                       .first_sum = static_cast<std::int64_t>(i)});
    }
    last = &piece;
  }
  return parts;
}

at::Tensor add_squares(const at::Device& gpu, const Gradients& gradients) {
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(gradients.pieces.size(), 1));
  const at::Tensor squares = at::zeros({2 * count}, at::TensorOptions().dtype(at::kDouble).device(gpu));
  run_on_device(gpu, kernels::Rule::kSquares, device_parts(gradients), {.squares = squares});
  return squares;
}

}  // namespace reigen::optim
