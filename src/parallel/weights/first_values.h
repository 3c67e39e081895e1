// Sets the values with which all ranks begin training: the values that the model has on rank 0. If the model was made
// without memory (nn/without_memory.h), DataParallelOptions::initialize sets these values.
//
// Order of calls: prepare() and begin_as_first_replica() before packing; fill() while packing, for parameters that no
// rank holds whole; complete() and then broadcast() after packing. Only the first rank of `sharers` calls fill(). All
// ranks make the other calls.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/tensor_parallel.h"
#include "reigen/tensor/flat_parameters.h"
#include "reigen/tensor/parameter_range.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

// Sets the weights of all ranges to those of rank `root`. No range may be divided between ranks.
void broadcast_weights(const Communicator& world, const std::vector<ParameterRange>& ranges, const std::string& tag,
                       int root);

// Tensors of a GPU that are in the host's memory for some time, because functions that set initial values write there.
class OnHost {
 public:
  OnHost() = default;
  ~OnHost() { give_back(); }
  OnHost(const OnHost&) = delete;  // only one object may give the memory back
  OnHost& operator=(const OnHost&) = delete;

  // Copies the tensor, which has memory, to the host. Does nothing for a tensor of the CPU.
  void take(at::Tensor tensor);
  // Copies the tensors to the GPU, into the memory that they had before. If it is not called (after an error), the
  // destructor gives the tensors this memory as it was.
  void finish();

 private:
  void give_back();

  std::vector<std::pair<at::Tensor, at::Tensor>> taken_;  // a tensor, and its memory on the GPU
};

class FirstValues {
 public:
  // `sharers`: the ranks between which parameters are divided. `replicas`: the ranks that hold the same shares as this
  // rank. `divided`: says which parameters are divided along the tensor axis (parallelize()). `initialize`: sets the
  // values of a model that was made without memory; it may be empty.
  FirstValues(torch::nn::Module& module, Communicator world, Communicator sharers, Communicator replicas,
              TensorParallel divided, std::function<void()> initialize);

  // If `initialize` is set: gives buffers memory, and sets the values of all tensors that have memory. Throws
  // InvalidArgument if the model was made without memory and `initialize` is empty, and if `initialize` is set but a
  // divided parameter has memory already: `initialize` would set the values of a whole parameter.
  void prepare(const std::vector<tensor::NamedParameter>& parameters);
  // Call it before these parameters are divided among ranks. The first replica sends its values of the parameters to
  // the other replicas.
  void begin_as_first_replica(const std::vector<tensor::NamedParameter>& parameters);
  // Sets the values of this parameter, which no rank holds whole. During the call the parameter has memory.
  void fill(const at::Tensor& parameter);
  // Gives memory and values to parameters that were packed without memory. `come_and_go`: whether weights are gathered
  // and freed again. fill() has then set their values already, and complete() does nothing.
  void complete(const std::vector<tensor::NamedParameter>& parameters, const std::vector<ParameterRange>& trained,
                const std::vector<ParameterRange>& all, bool come_and_go);
  // Broadcasts rank 0's weights, unless they are divided among ranks, and rank 0's values of parameters that are not
  // packed.
  void broadcast(const std::vector<at::Tensor>& parameters, const std::vector<ParameterRange>& trained,
                 const std::vector<ParameterRange>& all);

 private:
  void set_values(const std::vector<tensor::NamedParameter>& parameters);
  void set_only(at::Tensor parameter);

  torch::nn::Module& module_;
  Communicator world_;
  Communicator sharers_;
  Communicator replicas_;
  TensorParallel divided_;
  std::function<void()> initialize_;
  std::map<const at::TensorImpl*, std::string> names_of_divided_;
  bool had_none_ = false;                    // some parameter had no memory
  std::vector<tensor::NamedParameter> all_;  // the parameters of prepare()
  OnHost buffers_;
};

}  // namespace reigen::parallel
