// Creates models without memory for their weights. So a rank can create a model that is too large for the memory of one
// rank.
//
//   std::optional<reigen::nn::WithoutMemory> without(std::in_place);
//   Gpt model(options);                                    // any torch::nn modules; the weights have no values
//   without.reset();
//   auto parallel = reigen::data_parallel(model, world, {.shard = reigen::Shard::kParameters,
//                                                        .initialize = [&] { model.initialize(seed); }});
//
// While a WithoutMemory object lives, torch::empty() on this thread returns CPU tensors without memory. An operation
// that would write into such a tensor does nothing. So the parameters of torch::nn's modules have no memory, because
// these modules create them by torch::empty() and then write random values into them. Tensors that other operations
// create have memory and values as usual, for example constants, and buffers that begin as zeros or ones. Reading a
// tensor without memory gives NaN (on a GPU the kernel fails). Writing to it through data_ptr() ends the program.
// data_parallel() later allocates memory for each parameter, or for this rank's share of it.
//
// data_parallel() calls the function .initialize, which sets the values. With kParameters over a network it calls
// .initialize once for each parameter. During such a call only this parameter has memory, and writes to the other
// parameters do nothing. So .initialize must set the values of each parameter independently of the others. It must also
// set the values of buffers that torch::empty() created. reigen::nn::initialize(), fill_uniform() and fill_normal() set
// each parameter independently, and the values are the same for every sharding and number of ranks. With kParameters
// over a network at most one whole parameter is in memory at a time.
//
// For a GPU call model.to(gpu) while the WithoutMemory object lives; then the weights are without memory on the GPU.
// While .initialize runs, the tensors whose values it sets are in the host's memory.
//
// If you convert the model by model.to(type), do so while the WithoutMemory object lives. A later conversion would
// allocate memory for all weights. While the object lives, an operation that would write into several tensors without
// memory, or into one as a named output (as torch::nn::init::eye_ does), throws InvalidArgument.
//
// Cost: none after the model was created. The design follows torch.device("meta") and torch::deferred_init of
// torchdistX.
// Thread rule: a WithoutMemory object acts on the thread that creates it. WithoutMemory objects may nest.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace reigen::nn {

class WithoutMemory {
 public:
  WithoutMemory();
  ~WithoutMemory();
  WithoutMemory(const WithoutMemory&) = delete;  // an object belongs to one scope
  WithoutMemory& operator=(const WithoutMemory&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Whether a tensor was created without memory and still has none.
bool has_no_memory(const at::Tensor& tensor);

}  // namespace reigen::nn
