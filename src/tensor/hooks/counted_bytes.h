// Counts the bytes of tensors that a thread makes: the memory that a step needs besides the memory that is kept.
//
//   tensor::CountedBytes bytes;
//   const at::Tensor loss = model->forward(input);
//   bytes.live();                                      // what forward keeps for backward
//   loss.backward();
//   bytes.peak();                                      // the most at once
//
// It counts the memory that LibTorch requests for CPU tensors on this thread while a CountedBytes lives. Memory that
// was requested in that time counts until it is freed, on whichever thread. A backward on the CPU runs on the thread
// that called it. Memory that is mapped instead of requested (weights that ranks share, units that are gathered) does
// not count.
// Thread rule: one thread, and one CountedBytes at a time on it.
#pragma once

#include <cstdint>
#include <memory>

namespace reigen::tensor {

class CountedBytes {
 public:
  CountedBytes();
  ~CountedBytes();
  CountedBytes(const CountedBytes&) = delete;  // one scope
  CountedBytes& operator=(const CountedBytes&) = delete;

  std::int64_t live() const;
  std::int64_t peak() const;

  struct Counter;

 private:
  std::shared_ptr<Counter> counter_;
};

}  // namespace reigen::tensor
