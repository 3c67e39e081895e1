// Makes a model's buffers (batch statistics, counters; of any types) the same on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class BufferSync {
 public:
  BufferSync(const std::vector<at::Tensor>& buffers, Communicator world);

  // broadcast() and average() block. Neither changes autograd's version counters, so a graph that saved a buffer can
  // still run its backward.
  void broadcast(const std::string& tag, int root = 0);  // buffers = the buffers of rank `root`
  // The ranks whose buffers count in a mean: all ranks, or those that have data.
  struct Contributors {
    bool from_here = true;
    int ranks = 1;
    int first = 0;
  };
  // Floating-point buffers = their mean over the contributors. Integer and boolean buffers = those of the first
  // contributor.
  void average(const std::string& tag, const Contributors& contributors);
  bool empty() const { return buffers_.empty(); }

 private:
  // Buffers of one element type, one after the other in the staging buffer; the padding between them is zero.
  struct Stretch {
    at::ScalarType type = at::kFloat;
    std::int64_t begin = 0;  // in bytes
    std::int64_t end = 0;
  };

  void copy_in();
  void copy_out();

  Communicator world_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> places_;  // the place of each buffer in the staging buffer
  std::vector<Stretch> stretches_;
  at::Tensor staging_;  // bytes, on the device of the buffers
};

}  // namespace reigen::parallel
