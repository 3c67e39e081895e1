// Packs a module's parameters into flat buffers, one for each element type.
//
// The buffers come from Communicator::allocate, so that collectives on them copy nothing; they are freed when the last
// range, parameter or view into them dies. Parameters keep their identity (hooks, tied uses, the module's members) and
// become row-major views into the buffer. Channels-last weights lose that layout, and convolutions then choose a
// layout of their own. Pack before the first backward: tensors that an earlier forward saved still point to the old
// memory.
//
// A layout (reigen/layout/layout.h) says where each parameter lies, and which rank has which share. Divided values
// begin as those of rank 0 of the ranks that divide. Thread rule: construct on one thread while nothing uses the
// module.
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

// The parameter as a layout sees it, without its unit, which only the model's owner knows.
layout::TensorSpec spec_of(const NamedParameter& parameter);

// Options that a layout does not have.
struct FlatOptions {
  Communicator sharers = {};           // the ranks along dp_shard, which divide
  std::filesystem::path offload = {};  // the directory of Medium::kDisk
  // For parameters without memory (nn/without_memory.h) that no rank holds whole: sets the values of a parameter,
  // which has memory for the moment, on the rank whose values count. Other parameters without memory begin as zeros.
  std::function<void(const at::Tensor& parameter)> fill = {};
};

class FlatParameters {
 public:
  // Divides nothing: one range for each type.
  // Equation: ranges()[d].values[offset_i ..] = parameter_i, in the given order, parameters of equal type together.
  // Cost: one copy of the parameters; the gradient twin takes no memory until it is written.
  // Throws InvalidArgument naming the parameter: not floating point, not on the CPU, sparse, or sharing memory with
  // another one (tie parameters by registering the same tensor twice).
  FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory);
  // Makes the ranges of the layout at these coordinates. parameters[i] is tensor i of the layout's model; parameters
  // that the layout does not pack are left as they are. Collective over the sharers. Also throws BackendError if the
  // layout asks for common memory and the sharers have none.
  FlatParameters(const std::vector<NamedParameter>& parameters, const layout::Layout& layout,
                 const layout::Coordinates& at, FlatOptions options);

  // The ranges of trainable parameters, in the order of the layout. Empty if there are none.
  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  // The ranges of frozen parameters that ranks divide.
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
