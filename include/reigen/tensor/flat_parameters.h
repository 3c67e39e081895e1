// Packs a module's parameters into flat buffers, one for each element type.
//
// The buffers come from Communicator::allocate, so that collectives on them make no copy. A buffer is freed when the
// last range, parameter or view into it is destroyed. Parameters keep their identity (hooks, tied uses, the module's
// members) and become row-major views into the buffer. Channels-last weights lose that layout, and convolutions then
// choose a layout of their own. Pack before the first backward, because tensors that an earlier forward saved still
// point to the old memory.
//
// A layout (reigen/layout/layout.h) says where each parameter lies, and which rank has which share. Where weights are
// divided among ranks (FlatOptions::sharers), they begin with the values of rank 0 of these ranks. Thread rule:
// construct on one thread while nothing uses the module.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/tensor/parameter_range.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::tensor {

struct NamedParameter {
  std::string name;
  std::vector<std::string> aliases = {};
  at::Tensor parameter;
};

// All parameters in registration order. A parameter with several names appears once, under the name registered first.
std::vector<NamedParameter> named_parameters(const torch::nn::Module& module);

// The parameter in the form that a layout takes. The unit is not set, because only the caller knows it.
layout::TensorSpec spec_of(const NamedParameter& parameter);

// Options that are not part of a layout.
struct FlatOptions {
  Communicator sharers = {};           // the ranks along axis dp_shard, among which data are divided
  std::filesystem::path offload = {};  // the directory for data that the layout places on a disk
  // Sets the initial values of a parameter without memory (nn/without_memory.h) that no rank holds whole. `parameter`
  // has memory only during the call. The function runs on the rank whose values all ranks take. Other parameters
  // without memory begin as zeros.
  std::function<void(const at::Tensor& parameter)> fill = {};
};

class FlatParameters {
 public:
  // Divides nothing among ranks: one range for each element type. Communicator `memory` allocates the buffers.
  // Equation: ranges()[d].values[offset_i ..] = parameter_i, in the given order, parameters of equal type together.
  // Cost: one copy of the parameters; the buffer for gradients takes no memory until it is written.
  // Throws InvalidArgument naming the parameter: not floating point, sparse, neither on the CPU nor on a GPU, on
  // another device than the others, or sharing memory with another one (tie parameters by registering the same tensor
  // twice).
  FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory);
  // Makes the ranges that the layout gives the rank at coordinates `at`. parameters[i] is tensor i of the layout's
  // model; parameters that the layout does not pack do not change. Collective over the sharers. Also throws
  // BackendError if the layout needs common memory and the sharers have none.
  FlatParameters(const std::vector<NamedParameter>& parameters, const layout::Layout& layout,
                 const layout::Coordinates& at, FlatOptions options);

  // The ranges of trainable parameters, in the order of the layout. Empty if there are none.
  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  // The ranges of frozen parameters that ranks shard.
  const std::vector<ParameterRange>& frozen() const { return frozen_; }
  // The unit of each range, first of ranges(), then of frozen(); layout::kNoUnit: no unit.
  const std::vector<std::size_t>& units() const { return units_; }

 private:
  void pack(const std::vector<NamedParameter>& parameters, const layout::Layout& layout, const layout::Coordinates& at,
            FlatOptions options);

  std::vector<ParameterRange> ranges_;
  std::vector<ParameterRange> frozen_;
  std::vector<std::size_t> units_;
};

}  // namespace reigen::tensor
