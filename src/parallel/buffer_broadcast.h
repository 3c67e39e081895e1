// Rank 0's buffers (batch statistics, counters: any types) to all ranks in one broadcast.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class BufferBroadcast {
 public:
  BufferBroadcast(const std::vector<at::Tensor>& buffers, Communicator world);

  // Buffers on every rank = buffers on rank 0. Blocking. Autograd does not notice: a graph that saved a buffer stays
  // usable.
  void run(const std::string& tag);
  bool empty() const { return buffers_.empty(); }

 private:
  Communicator world_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> places_;  // each buffer's place in the staging block
  std::shared_ptr<void> staging_;
  std::size_t bytes_ = 0;
};

}  // namespace reigen::parallel
