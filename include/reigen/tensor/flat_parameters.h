// Packs a module's parameters into flat buffers, one for each element type.
//
// The buffers come from Communicator::allocate, so that collectives on them copy nothing; they are freed when the last
// range, parameter or view into them dies. Parameters keep their identity (hooks, tied uses, the module's members) and
// become row-major views into the buffer; channels-last weights lose that layout, convolutions then choose their own.
// Pack before the first backward: what an earlier forward saved still points to the old memory.
//
// What lies where, and which rank has which share, is a layout's (reigen/layout/layout.h). Divided values begin as
// those of rank 0 of the ranks that divide. Thread rule: construct on one thread while nothing uses the module.
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

// All parameters in registration order. One that is registered under several names comes once, under the first.
std::vector<NamedParameter> named_parameters(const torch::nn::Module& module);

// Without its unit, which only the model's owner knows.
layout::TensorSpec spec_of(const NamedParameter& parameter);

// What a layout does not say.
struct FlatOptions {
  Communicator sharers = {};           // the ranks along dp_shard: who divide
  std::filesystem::path offload = {};  // the directory of Medium::kDisk
  // Of parameters without memory (nn/without_memory.h): sets the values of one that has some for the moment, on the
  // rank whose values count, where no rank has them whole. Others begin as zeros.
  std::function<void(const at::Tensor& parameter)> fill = {};
};

class FlatParameters {
 public:
  // Nothing is divided: one range for each type.
  // Equation: ranges()[d].values[offset_i ..] = parameter_i, in the given order, parameters of equal type together.
  // Cost: one copy of the parameters; the gradient twin takes no memory until it is written.
  // Throws InvalidArgument naming the parameter: not floating point, not on the CPU, sparse, or sharing memory with
  // another one (tie parameters by registering the same tensor twice).
  FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory);
  // The ranges of the layout at these coordinates. parameters[i] is tensor i of the layout's model; those that it does
  // not pack are left as they are. Collective over the sharers. Throws also BackendError where memory is to be common
  // and is not.
  FlatParameters(const std::vector<NamedParameter>& parameters, const layout::Layout& layout,
                 const layout::Coordinates& at, FlatOptions options);

  // Of trainable parameters, in the order of the layout. Empty if there are none.
  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  // Of frozen parameters that ranks divide.
  const std::vector<ParameterRange>& frozen() const { return frozen_; }
  // The unit of each range, those of frozen() after those of ranges(); layout::kNoUnit: of none.
  const std::vector<std::size_t>& units() const { return units_; }

 private:
  void pack(const std::vector<NamedParameter>& parameters, const layout::Layout& layout, const layout::Coordinates& at,
            FlatOptions options);

  std::vector<ParameterRange> ranges_;
  std::vector<ParameterRange> frozen_;
  std::vector<std::size_t> units_;
};

}  // namespace reigen::tensor
