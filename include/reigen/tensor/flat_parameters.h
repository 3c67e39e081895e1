// Packs a module's parameters into flat buffers, one for each element type.
//
// The buffers come from Communicator::allocate, so that collectives on them make no copy. A buffer is freed when the
// last range, parameter or view into it is destroyed. The module's parameters remain the same tensor objects, with
// their hooks and ties, and become row-major views into the buffer. So channels-last weights lose the channels-last
// layout, and convolutions then choose a layout themselves. Pack before the first backward. Tensors that an earlier
// forward saved still point to the old memory, so do not run the backward of such a forward.
//
// A layout (reigen/layout/layout.h) says where each parameter lies, and which rank has which share. If weights are
// divided among ranks (FlatOptions::sharers), all these ranks begin with the values of rank 0 of `sharers`. Thread
// rule: construct on one thread while nothing uses the module.
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

// Describes the parameter in the form that a layout takes. The result's unit (part of the model) is not set, because
// only the caller knows it.
layout::TensorSpec spec_of(const NamedParameter& parameter);

// Options that are not part of a layout.
struct FlatOptions {
  Communicator sharers = {};           // the ranks among which data are divided (mesh axis dp_shard)
  Communicator box_owners = {};        // the ranks that divide dimensions of parameters (mesh axis tp)
  Communicator stages = {};            // the ranks that hold the stages of the model (mesh axis pp)
  std::filesystem::path offload = {};  // the directory for data that the layout places on a disk
  // A function that sets the initial values of a parameter that was created without memory (nn/without_memory.h) and of
  // which each rank holds only its share. `parameter` has memory only during the call. The function runs on rank 0 of
  // `sharers`, and all ranks take its values. Other parameters without memory begin as zeros.
  std::function<void(const at::Tensor& parameter)> fill = {};
};

class FlatParameters {
 public:
  // Divides nothing among ranks, and makes one range (a flat buffer with its parameters) for each element type. The
  // communicator `memory` allocates the buffers. ranges()[d].values[offset_i ..] = parameter_i, for the parameters of
  // element type d, in the given order. Cost: one copy of the parameters; the buffer for gradients takes no memory
  // until it is written.
  // Throws InvalidArgument if a parameter is not floating point, is sparse, is neither on the CPU nor on a GPU, is on
  // another device than the other parameters, or shares memory with another parameter. The error names the parameter.
  // To tie parameters, register the same tensor twice.
  FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory);
  // Makes the ranges of this rank, which has the coordinates `at` in the layout. parameters[i] is tensor i of the
  // layout's model; it may be undefined if it belongs to another stage. Parameters that the layout does not pack do not
  // change. Collective over the ranks
  // FlatOptions::sharers. Also throws BackendError if the layout needs memory that all these ranks share, and they
  // cannot share memory.
  FlatParameters(const std::vector<NamedParameter>& parameters, const layout::Layout& layout,
                 const layout::Coordinates& at, FlatOptions options);

  // The ranges of trainable parameters, in the order of the layout. Empty if no parameter is trainable.
  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  // The ranges of frozen parameters that ranks shard.
  const std::vector<ParameterRange>& frozen() const { return frozen_; }
  // The number of each range's unit (part of the model). The ranges are in the order of ranges(), followed by those of
  // frozen(). layout::kNoUnit means that the range belongs to no unit.
  const std::vector<std::size_t>& units() const { return units_; }

 private:
  void pack(const std::vector<NamedParameter>& parameters, const layout::Layout& layout, const layout::Coordinates& at,
            FlatOptions options);

  std::vector<ParameterRange> ranges_;
  std::vector<ParameterRange> frozen_;
  std::vector<std::size_t> units_;
};

}  // namespace reigen::tensor
