// The operations of the NCCL backend: enqueued on the group's stream in the order of the calls, then asked for by an
// event. What one writes the next may read: a stream does one thing after the other.
//
// Host memory of up to kHostBytes (a loss, a vote) is carried to the device and back, one call at a time; more is
// refused.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <vector>

#include "comm/backend.h"
#include "comm/control/store_control.h"

namespace reigen::comm::nccl {

inline constexpr std::size_t kHostBytes = 64 * 1024;
inline constexpr std::size_t kBarrierBytes = 256;

// What the operations of a group share.
struct Group {
  int rank = 0;
  int size = 1;
  int device = 0;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::shared_ptr<void> scratch = {};  // of the device: a barrier's byte, then the input and the output of host memory
  std::shared_ptr<void> pinned = {};   // of the host, for the same: only from here do copies run without waiting
  bool host_busy = false;              // an operation on host memory is under way: the next one waits
  std::unique_ptr<control::StoreControl> control = {};
};

// Throws InvalidArgument for reductions that NCCL does not have, and for memory that it cannot reach.
void check_call(const Group& group, const Call& call);

class Collective : public Operation {
 public:
  // On the caller's thread: what its default stream has to do until now comes first.
  Collective(Group& group, const Call& call, std::uint64_t sequence);
  ~Collective() override;

  bool try_post() override { return true; }
  Step advance() override;

  const Call& call() const { return call_; }
  std::uint64_t sequence() const { return sequence_; }

 private:
  enum class Phase { kFirst, kEnqueuing, kRunning, kDone };
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
  bool settled() const;

  Group& group_;
  const Call call_;
  const std::uint64_t sequence_;
  const Extent extent_;
  Phase phase_ = Phase::kFirst;
  cudaEvent_t ready_ = nullptr;
  cudaEvent_t done_ = nullptr;
  const std::byte* input_ = nullptr;  // where NCCL reads and writes
  std::byte* output_ = nullptr;
  bool host_input_ = false;
  bool host_output_ = false;
};

}  // namespace reigen::comm::nccl
