// Creates models without memory for their weights, so that a model that is too large for one rank is never whole in
// memory.
//
//   std::optional<reigen::nn::WithoutMemory> without(std::in_place);
//   Gpt model(options);                                    // any torch::nn modules: names and shapes, no values
//   without.reset();
//   auto parallel = reigen::data_parallel(model, world, {.shard = reigen::Shard::kParameters,
//                                                        .initialize = [&] { model.initialize(seed); }});
//
// While a WithoutMemory lives, torch::empty() on this thread returns CPU tensors without memory, and an operation that
// would write into such a tensor does nothing. This covers the parameters of torch::nn's modules, which create them by
// torch::empty() and then set random values. Tensors that other operations create have memory and values as usual:
// buffers that begin as zeros or ones, constants. A tensor without memory reads as NaN, and a write that bypasses the
// guard ends the program. data_parallel() allocates memory for the tensor, or for a share of it.
//
// data_parallel() calls .initialize. With kParameters over a network it calls .initialize once for each parameter.
// During such a call only this parameter has memory, and writes to the others do nothing. .initialize must set the
// values of each parameter independently of the others. It must also set the values of buffers that torch::empty()
// created. reigen::nn::initialize(), fill_uniform() and fill_normal() do so, and give every layout the same values.
// With kParameters over a network at most one whole parameter is in memory at a time.
//
// Convert the model while the guard lives: a later model.to(type) would allocate memory for all weights. Operations
// that write into several tensors, or into a named output (as torch::nn::init::eye_ does), throw InvalidArgument under
// the guard. Code that writes through data_ptr() ends the program.
//
// Cost: nothing after the model was created. After torch.device("meta") and torch::deferred_init of torchdistX.
// Thread rule: a guard acts on the thread that creates it; guards nest.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace reigen::nn {

class WithoutMemory {
 public:
  WithoutMemory();
  ~WithoutMemory();
  WithoutMemory(const WithoutMemory&) = delete;  // a guard belongs to one scope
  WithoutMemory& operator=(const WithoutMemory&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Whether a tensor was created without memory and still has none.
bool has_no_memory(const at::Tensor& tensor);

}  // namespace reigen::nn
