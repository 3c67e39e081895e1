// Packs a module's parameters into flat buffers, one for each element type.
//
// The buffers come from Communicator::allocate, so that collectives on them copy nothing; they are freed when the last
// range, parameter or view into them dies. Parameters keep their identity (hooks, tied uses, the module's members) and
// become row-major views into the buffer; channels-last weights lose that layout, convolutions then choose their own.
// Pack before the first backward: what an earlier forward saved still points to the old memory.
//
// A Division says what ranks of the group divide between them. Rank r's share of a range of D elements begins at the
// block of a parameter (parameter_range.h) nearest to r·D/P. Divided values begin as rank 0's.
// Thread rule: construct on one thread while nothing uses the module.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
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

enum class Averages {
  kWhole,  // gradients are averaged everywhere
  kRows,   // each rank's lie where all read them, and each averages its share (Share::gradients)
  kShare,  // each rank gets the mean of its share, and gradients have memory from backward until then (Share::made)
};

struct Division {
  Values values = Values::kOwn;
  Averages averages = Averages::kWhole;
  // Where files may lie that hold divided values and every twin (ParameterRange::make_twin) in place of memory; empty:
  // nowhere.
  std::filesystem::path offload = {};
  // Of parameters without memory (nn/without_memory.h): sets the values of one that has some for the moment, on the
  // rank whose values count, where these are divided so that none has them whole (kGathered). Others begin as zeros.
  std::function<void(const at::Tensor& parameter)> fill = {};
};

class FlatParameters {
 public:
  // Equation: ranges()[d].values[offset_i ..] = parameter_i, in the given order, parameters of equal type together.
  // Cost: one copy of the parameters; the gradient twin takes no memory until it is written.
  // Throws InvalidArgument naming the parameter: not floating point, not on the CPU, sparse, or sharing memory with
  // another one (tie parameters by registering the same tensor twice). With a division it is collective, with
  // parameters of the same shapes and types on every rank, and throws BackendError where memory is to be common and is
  // not.
  FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory, const Division& division = {})
      : FlatParameters(std::vector<std::vector<NamedParameter>>(1, parameters), std::move(memory), division) {}
  // The same with ranges of their own for each group, in the order of the groups.
  FlatParameters(const std::vector<std::vector<NamedParameter>>& groups, Communicator memory, const Division& division);

  // In order of each type's first parameter. Empty if there are no parameters.
  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  // groups_of_ranges()[i]: the group that range i is of.
  const std::vector<std::size_t>& groups_of_ranges() const { return groups_of_ranges_; }

 private:
  std::vector<ParameterRange> ranges_;
  std::vector<std::size_t> groups_of_ranges_;
};

}  // namespace reigen::tensor
