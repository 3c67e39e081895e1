// Models that are made without memory for their weights: what no rank could hold whole is never there whole.
//
//   std::optional<reigen::nn::WithoutMemory> without(std::in_place);
//   Gpt model(options);                                    // any torch::nn modules: names and shapes, no values
//   without.reset();
//   auto parallel = reigen::data_parallel(model, world, {.shard = reigen::Shard::kParameters,
//                                                        .initialize = [&] { model.initialize(seed); }});
//
// While one lives, torch::empty() on this thread gives CPU tensors without memory, and an operation that would write
// into one does nothing: torch::nn's modules make their parameters so and set them at random. What is made by other
// operations has its values as ever: buffers that begin as zeros or ones, constants. A tensor without memory reads as
// NaN and ends the program when something writes to it otherwise; data_parallel() gives it memory, or a share of some.
//
// data_parallel() calls .initialize, with kParameters over a network once for each parameter, which alone has memory
// meanwhile: writes to the others do nothing. It must set each parameter's values by itself, and those of buffers that
// began with torch::empty(), as reigen::nn::initialize(), fill_uniform() and fill_normal() do, which give every layout
// the same. In memory: one parameter.
//
// Convert while the guard lives: model.to(type) behind it would make memory for all. Operations that write into several
// tensors, or into one that is named (torch::nn::init::eye_ does), throw InvalidArgument there; what writes through
// data_ptr() ends the program.
//
// Cost: nothing once the model is made. After torch.device("meta") and torch::deferred_init of torchdistX.
// Thread rule: for the thread that makes it; guards nest.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace reigen::nn {

class WithoutMemory {
 public:
  WithoutMemory();
  ~WithoutMemory();
  WithoutMemory(const WithoutMemory&) = delete;  // one scope
  WithoutMemory& operator=(const WithoutMemory&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Whether a tensor was made without memory and has none yet.
bool has_no_memory(const at::Tensor& tensor);

}  // namespace reigen::nn
