// How the stand-in for LibTorch's device "cuda" records operators for a CUDA graph (graph.cc). An operator is computed
// when it is captured, and once more in each replay, then from the numbers that its inputs have at that time.
// Thread rule: any thread; one capture at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace reigen::testing::played {

// Whether an operator must record itself: work on the current stream is captured now, and the operator is not a part of
// another one.
bool is_recorded();
// Throws c10::Error if work on the current stream is captured, because `what` makes the host wait.
void refuse_in_capture(const char* what);

// The memory of a tensor as a tensor of the CPU. It waits for nothing.
class View {
 public:
  explicit View(const at::Tensor& tensor);
  at::Tensor tensor() const;

 private:
  c10::Storage keeps_alive_;  // not the tensor: LibTorch moves a gradient to .grad only if nobody else holds it
  const void* data_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  c10::ScalarType type_;
};

// Records that results = op(arguments).
void record_operation(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                      const std::vector<c10::IValue>& results);
// Records that `results` get the tensors that `compute` returns.
void record_results(const std::vector<at::Tensor>& results, std::function<std::vector<at::Tensor>()> compute);

// The memory that LibTorch's allocator hands out now belongs to this graph; 0: to none.
int memory_pool();

// Defined with the allocator (torch_cuda.cc): frees the memory that no tensor of the graph uses.
void free_pool(int pool);

}  // namespace reigen::testing::played
