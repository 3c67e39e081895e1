// Counts the bytes of tensors that a thread makes. For a step this is the memory that the step needs in addition to
// weights and other tensors that exist before it.
//
//   tensor::CountedBytes bytes;
//   const at::Tensor loss = model->forward(input);
//   bytes.live();                                      // what forward keeps for backward
//   loss.backward();
//   bytes.peak();                                      // the largest live() so far
//
// A CountedBytes counts the memory that LibTorch requests for CPU tensors on its thread while the object lives. Memory
// that was requested in that time counts until any thread frees it. A backward on the CPU runs on the thread
// that called it, so its memory counts too. Memory that does not come from LibTorch's allocator (weights that ranks
// share, gathered units) does not count.
// Thread rule: a CountedBytes belongs to one thread. A thread has at most one CountedBytes at a time.
#pragma once

#include <cstdint>
#include <memory>

namespace reigen::tensor {

class CountedBytes {
 public:
  CountedBytes();
  ~CountedBytes();
  CountedBytes(const CountedBytes&) = delete;  // an object belongs to one scope
  CountedBytes& operator=(const CountedBytes&) = delete;

  std::int64_t live() const;
  std::int64_t peak() const;

  struct Counter;

 private:
  std::shared_ptr<Counter> counter_;
};

}  // namespace reigen::tensor
