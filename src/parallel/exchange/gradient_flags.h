// Tells each rank which parameters have a gradient on some rank. For this the ranks start a call on memory of the host
// when backward has ended.
//
// If the gradients are on a GPU, the call does not delay a rank that has all gradients: such a rank waits for the call
// only after the next backward.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/exchange/bucket_queue.h"
#include "reigen/comm/communicator.h"
#include "reigen/comm/work.h"

namespace reigen::parallel {

class GradientFlags {
 public:
  using Has = std::function<bool(std::size_t parameter)>;

  GradientFlags(const Communicator& world, std::size_t parameters, bool is_on_gpu);

  // Waits for the last call, and then starts a new one through `queue`, which gives the call its tag. `has`: whether
  // this rank has a gradient of the parameter.
  void start(const Has& has, BucketQueue& queue);
  // Returns for each parameter 1 if some rank has a gradient of it, else 0. Waits for the call, unless gradients are on
  // a GPU and this rank has all of them.
  std::vector<char> on_any_rank(const Has& has);

 private:
  void end();

  std::size_t parameters_;
  bool is_on_gpu_;
  std::shared_ptr<void> flags_;  // a byte for each parameter; a call in flight keeps it alive even without this object
  Work work_;
};

}  // namespace reigen::parallel
