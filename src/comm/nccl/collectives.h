// The collectives of the NCCL backend. They are enqueued on the group's stream in the order of the calls, and an event
// shows when each is complete. A call may read the output of the call before it, because a stream runs its work in
// order.
//
// NCCL wants the same reduction on all ranks, but each rank has its own factor. So the factor is not a part of the
// reduction. Before the reduction, a reduction over a communicator of this rank alone multiplies the input by the
// factor. It writes the product to the call's output if the output is large enough, else to scratch memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/call/checked_operation.h"
#include "comm/nccl/api.h"
#include "comm/nccl/group.h"

namespace reigen::comm::nccl {

// Throws InvalidArgument for reductions that NCCL does not have.
void check_reduction(const Call& call);

class Collective : public CheckedOperation {
 public:
  // Runs on the caller's thread. The collective begins after the work that is on the stream call.after now.
  Collective(Group& group, const Call& call, std::uint64_t sequence);

  bool try_post() override { return true; }
  Step advance() override;
  bool precede(const Stream& stream) override;
  void check_peers(std::chrono::nanoseconds waited) const override { group_.control->check(call_, sequence_, waited); }

 private:
  enum class Phase { kFirst, kScaling, kEnqueuing, kRunning, kDone };
  struct Block {  // elements
    std::size_t begin;
    std::size_t count;
  };

  Block block(const std::vector<std::size_t>& counts, int rank) const;
  Block sent_to(int rank) const;
  Block received_from(int rank) const;
  void enqueue();
  ncclResult_t enqueue_call();
  ncclResult_t enqueue_by_messages();
  ncclResult_t enqueue_by_reductions();
  cudaStream_t stream() const { return of_cuda(group_.stream->get()); }
  bool settled() const { return group_.communicator.settled(name_of(call_.kind)); }
  bool has_factor() const { return call_.factor != 1 && extent_.input > 0; }
  bool may_scale_into_output() const;
  bool can_scale() const;
  void take_scratch();
  void scale();

  Group& group_;
  const Call& call_;
  const std::uint64_t sequence_;
  const Extent extent_;
  Phase phase_ = Phase::kFirst;
  device::Event ready_{group_.device};
  device::Event done_{group_.device};
  std::shared_ptr<void> scaled_;      // scratch memory for the input times its factor, unless it goes to the output
  const std::byte* input_ = nullptr;  // NCCL reads input_ and writes output_
  std::byte* output_ = nullptr;
};

}  // namespace reigen::comm::nccl
