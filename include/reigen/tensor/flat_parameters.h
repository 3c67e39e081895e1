// Packs a module's parameters into flat buffers, one for each element type.
//
// The buffers come from Communicator::allocate, so that collectives on them copy nothing; they are freed when the last
// range, parameter or view into them dies. Parameters keep their identity (hooks, tied uses, the module's members) and
// become row-major views into the buffer; channels-last weights lose that layout, convolutions then choose their own.
// Pack before the first backward: what an earlier forward saved still points to the old memory.
//
// With Common::kValues these are one memory of all ranks of the group (Communicator::allocate_shared) and begin as rank
// 0's; rank r's share of D elements begins at the block of a parameter (parameter_range.h) nearest to r·D/P.
// Thread rule: construct on one thread while nothing uses the module.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
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

enum class Common { kNothing, kValues, kValuesAndGradients };

class FlatParameters {
 public:
  // Equation: ranges()[d].values[offset_i ..] = parameter_i, in the given order, parameters of equal type together.
  // Cost: one copy of the parameters; the gradient twin takes no memory until it is written.
  // Throws InvalidArgument naming the parameter: not floating point, not on the CPU, sparse, or sharing memory with
  // another one (tie parameters by registering the same tensor twice). With something in common it is collective, with
  // parameters of the same shapes and types on every rank, and throws BackendError where ranks share no memory.
  FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory, Common common = Common::kNothing);

  // In order of each type's first parameter. Empty if there are no parameters.
  const std::vector<ParameterRange>& ranges() const { return ranges_; }

 private:
  std::vector<ParameterRange> ranges_;
};

}  // namespace reigen::tensor
