// Makes a model's buffers (batch statistics, counters) the same on all ranks. The buffers may have different types.
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
  void broadcast(const std::string& tag, int root = 0);  // every rank gets the buffers of rank `root`
  // The ranks whose buffers count in the mean. Usually these are all ranks. Under a Join (reigen/parallel/join.h) the
  // data of some ranks may end earlier. Then only the ranks that made the latest forward count, because the buffers of
  // the other ranks are older.
  struct Contributors {
    bool from_here = true;  // whether this rank is one of them
    int ranks = 1;          // how many they are
    int first = 0;          // the lowest of them
  };
  // Sets floating-point buffers to their mean over the contributors, and integer and boolean buffers to those of the
  // first contributor.
  void average(const std::string& tag, const Contributors& contributors);
  bool empty() const { return buffers_.empty(); }

 private:
  // The buffers of one element type. They lie one after the other in the staging buffer, with zeros as padding between
  // them.
  struct Stretch {
    at::ScalarType type = at::kFloat;
    std::int64_t begin = 0;  // an offset in the staging buffer, in bytes
    std::int64_t end = 0;
  };

  void copy_in();
  void copy_out();

  Communicator world_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> places_;  // views of the staging buffer, one for each buffer
  std::vector<Stretch> stretches_;
  at::Tensor staging_;  // a tensor of bytes, on the device of the buffers
};

}  // namespace reigen::parallel
