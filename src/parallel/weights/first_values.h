// The values that all ranks begin with: rank 0's. Of a model that was made without memory what
// DataParallelOptions::initialize sets.
//
// Before packing: prepare(). While packing: fill() where no rank has the values whole. After packing: complete(), then
// broadcast(). Each is a call of all ranks.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/flat_parameters.h"
#include "reigen/tensor/parameter_range.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

// Weights of every range that nobody divides = those of rank `root`.
void broadcast_weights(const Communicator& world, const std::vector<ParameterRange>& ranges, const std::string& tag,
                       int root);

class FirstValues {
 public:
  // `initialize` may be empty. `sharers` divide, `replicas` hold the same shares.
  FirstValues(torch::nn::Module& module, Communicator world, Communicator sharers, Communicator replicas,
              std::function<void()> initialize);

  // What has memory has its values, and buffers have both. Throws InvalidArgument where nothing sets the values of a
  // model without memory.
  void prepare(const std::vector<tensor::NamedParameter>& parameters);
  // Those who divide these parameters begin as the first replica.
  void begin_as_first_replica(const std::vector<tensor::NamedParameter>& parameters);
  // This parameter, which no rank has whole, has memory for the moment.
  void fill(const at::Tensor& parameter);
  // What was packed without values gets memory and values, unless fill() set them (`come_and_go`).
  void complete(const std::vector<tensor::NamedParameter>& parameters, const std::vector<ParameterRange>& trained,
                const std::vector<ParameterRange>& all, bool come_and_go);
  // Weights that nobody divides, and the parameters that are not packed.
  void broadcast(const std::vector<at::Tensor>& parameters, const std::vector<ParameterRange>& trained,
                 const std::vector<ParameterRange>& all);

 private:
  torch::nn::Module& module_;
  Communicator world_;
  Communicator sharers_;
  Communicator replicas_;
  std::function<void()> initialize_;
  bool had_none_ = false;  // some parameter had no memory
};

}  // namespace reigen::parallel
