// Bytes of tensors that a thread makes: what a step needs beside what stays.
//
//   tensor::CountedBytes bytes;
//   const at::Tensor loss = model->forward(input);
//   bytes.live();                                      // what forward has left behind for backward
//   loss.backward();
//   bytes.peak();                                      // the most at once
//
// Counted are CPU tensors' memory as LibTorch asks for it, from the moment one begins until it ends; what is made in
// that time counts until it dies, on whichever thread. A backward on the CPU runs on the thread that called it. Memory
// that is mapped and not asked for (weights that ranks share, units that are gathered) is not part of it.
// Thread rule: one thread; one at a time on it.
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
