// The operations of the NCCL backend: enqueued on the group's stream in the order of the calls, then asked for by an
// event. What one writes the next may read: a stream does one thing after the other.
//
// Host memory of up to kHostBytes (a loss, a vote) is carried to the device and back, one call at a time; more is
// refused.
//
// Ranks must agree on one reduction, and a factor is each rank's own. So it is not NCCL's business: the input is
// multiplied before, by a reduction of this rank alone, into the output where the call allows it, else into scratch
// memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/call/checked_operation.h"
#include "comm/nccl/api.h"
#include "comm/nccl/group.h"

namespace reigen::comm::nccl {

// Throws InvalidArgument for reductions that NCCL does not have, and for memory that it cannot reach.
void check_call(const Group& group, const Call& call);

class Collective : public CheckedOperation {
 public:
  // On the caller's thread: what its default stream has to do until now comes first.
  Collective(Group& group, const Call& call, std::uint64_t sequence);

  bool try_post() override { return true; }
  Step advance() override;
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
  bool uses_host() const { return host_input_ || host_output_; }
  std::byte* pinned(std::size_t at) const { return static_cast<std::byte*>(group_.pinned.get()) + at; }
  void bring_in();
  void bring_out();
  void hand_over();
  void enqueue();
  ncclResult_t enqueue_call();
  ncclResult_t enqueue_by_messages();
  ncclResult_t enqueue_by_reductions();
  bool settled() const { return group_.communicator.settled(name_of(call_.kind)); }
  bool has_factor() const { return call_.factor != 1 && extent_.input > 0; }
  bool may_scale_into_output() const;
  bool can_scale() const;
  void take_scratch();
  void scale();

  Group& group_;
  const Call call_;
  const std::uint64_t sequence_;
  const Extent extent_;
  Phase phase_ = Phase::kFirst;
  Event ready_{group_.device};
  Event done_{group_.device};
  std::shared_ptr<void> scaled_;      // where the input times its factor goes, if not into the output
  const std::byte* input_ = nullptr;  // where NCCL reads and writes
  std::byte* output_ = nullptr;
  bool host_input_ = false;
  bool host_output_ = false;
};

}  // namespace reigen::comm::nccl
