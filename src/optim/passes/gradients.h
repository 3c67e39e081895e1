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
  // Whether this rank processes the piece. If each rank has only its share of the averaged gradients, other ranks
  // process the other pieces.
  bool is_own(const Piece& piece) const;
  // Whether the piece belongs to a parameter of which other ranks have other boxes.
  bool is_of_box(const Piece& piece) const;
  // False for pieces of a copy of a tied weight, whose gradient another stage counts.
  bool counts(const Piece& piece) const;
  // Averages the piece over the ranks if its gradients are not averaged yet.
  void average(const Piece& piece) const;
};

// Throws InvalidArgument unless all ranges are on one device and are divided in the same way.
Gradients gradients_of(const std::vector<ParameterRange>& ranges);

// Whether each rank has only its share of the averaged gradients.
bool is_divided(const std::vector<ParameterRange>& ranges);

at::Device device_of(const std::vector<ParameterRange>& ranges);

// Returns the gradients that this rank processes, in the form that a GPU's kernels take: one part for each parameter.
// The sums of squares of a part's chunks have the same indices as the part's pieces in Gradients::pieces.
std::vector<DevicePart<kernels::NoStep>> device_parts(const Gradients& gradients);

// Enqueues kernels on a GPU that compute the sum of squares of each piece. Returns the fp64 tensor of the sums. It has
// two numbers for each piece, of which the first is the sum. The numbers of pieces that other ranks process are 0. If
// there are no pieces, the tensor has two zeros.
at::Tensor add_squares(const at::Device& gpu, const Gradients& gradients);

}  // namespace reigen::optim
