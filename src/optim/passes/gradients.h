// The gradients that a norm or clipping reads, cut into pieces.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "optim/kernels/kernels.h"
#include "optim/passes/blocks.h"
#include "optim/passes/device_pass.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct Gradients {
  struct Place {
    const ParameterRange* range = nullptr;
    std::size_t segment = 0;
  };
  std::vector<void*> data;
  std::vector<Place> places;
  std::vector<kernels::Layout> layouts;
  std::vector<std::size_t> element_sizes;
  std::vector<Piece> pieces;

  void* at(const Piece& piece) const;
  // Whether this rank computes with the piece. If each rank has only its share of the mean, other ranks compute with
  // the other pieces.
  bool is_own(const Piece& piece) const;
  // Averages the piece over the ranks if its gradients still await their average.
  void average(const Piece& piece) const;
};

// Throws InvalidArgument unless all ranges are on one device and are divided in the same way.
Gradients gradients_of(const std::vector<ParameterRange>& ranges);

// Whether each rank has only its share of the mean.
bool is_divided(const std::vector<ParameterRange>& ranges);

at::Device device_of(const std::vector<ParameterRange>& ranges);

// The gradients of which this rank computes, as a GPU's kernels take them: one part for each parameter. The sums of
// squares of a part's chunks are at the places of its pieces in Gradients::pieces.
std::vector<DevicePart<kernels::NoStep>> device_parts(const Gradients& gradients);

// On a GPU: enqueues the sums of squares of all pieces, and returns their place: fp64, two numbers for each piece, of
// which the first is the sum. The numbers of other ranks' pieces are 0. Without a piece there is one place, which is 0.
at::Tensor add_squares(const at::Device& gpu, const Gradients& gradients);

}  // namespace reigen::optim
