// A group of ranks that talk: P ranks, this one is r.
//
// Every rank calls the same operations in the same order with the same count, type, reduction and root; ranks compare
// what they were called with, and a difference is a CollectiveMismatch on all of them, naming both calls. Sums run in
// rank order whatever the algorithm, so every rank and every run gets the same bits.
//
// A call returns when it is done, on the caller's thread. start_NAME() returns at once: the operation then runs on the
// rank's progress thread, on a thread that waits for its Work, or inside poll(). Operations of one group begin and
// complete in the order of the calls. run() and start() take a list of calls, for all of which the ranks meet together
// (call_list.h). No call waits for ever: a dead peer is a PeerLost within a second, one that is stopped within ten, and
// one that is alive but does not come is reported after 30 s and a Timeout after 10 minutes (GroupOptions).
//
// A group carries the host's memory, and that of one GPU where GroupOptions::device names it: each kind of memory has a
// backend of its own, with an order of its own. The buffers of a call say which takes it; both in one call are an
// InvalidArgument. A call on a GPU's memory begins after what CallOptions::after has to do.
//
// A group and all that are split off it, and off these, are one family: a rank has one progress thread for it, and an
// error in one of its groups ends all of them, on every rank within a second, whatever group a rank waits in. The first
// call that hears of it throws it as it was (a PeerLost with the rank's number in that group, -1 where it is none of
// its ranks), every further one Aborted with the first cause. To leave a group ends no other.
//
// Thread rule: calls of one rank must be ordered by the caller in each group; calls of two groups may run at the same
// time. A Communicator is a handle: copies are the same group, and the last one leaves it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reigen/comm/history.h"
#include "reigen/comm/options.h"
#include "reigen/comm/types.h"
#include "reigen/comm/work.h"

namespace reigen::base {
struct CoreShare;
}  // namespace reigen::base

namespace reigen::comm {

class Backend;
class CallList;

class Communicator {
 public:
  Communicator();  // alone: rank 0 of 1
  explicit Communicator(
      const GroupOptions& options);  // blocks until all ranks are there; throws Timeout naming who is not

  int rank() const;
  int size() const;
  const std::string& name() const;
  // What carries the host's memory, and the device's: empty where the group carries none.
  const std::string& backend() const;
  const std::string& device_backend() const;
  // The device whose memory the group carries beside the host's; the cpu: none.
  Device device() const;
  // Which algorithm the last collective took that is complete here (docs/algorithms.md), of those on this kind of
  // memory: for tools and tests.
  std::string last_algorithm(DeviceKind memory = DeviceKind::kCpu) const;

  // output[i] = op over ranks of input[i], i < count. In place when output == input; they must not overlap otherwise.
  // In memory from allocate(): one pass, 2·N bytes of traffic a rank; elsewhere through a staging area, in chunks.
  // start_all_reduce() makes the same call and returns its Work at once, as every start_NAME() below.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                      const StartOptions& options = {}) const;

  // data on every rank = data on root. N bytes a rank.
  void broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options = {}) const;
  [[nodiscard]] Work start_broadcast(void* data, std::size_t count, DataType type, int root,
                                     const StartOptions& options = {}) const;

  // output[q·count + i] = input[i] of rank q. In place when input == output + r·count. P·N bytes a rank.
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_gather(const void* input, void* output, std::size_t count, DataType type,
                                      const StartOptions& options = {}) const;

  // output[i] = op over ranks q of input_q[r·count + i], i < count: the r-th of P blocks goes to rank r. In place when
  // output == input + r·count; they must not overlap otherwise. P·N bytes read, N written a rank.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const CallOptions& options = {}) const;
  [[nodiscard]] Work start_reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                          ReduceOp op, const StartOptions& options = {}) const;

  // output on root = op over ranks of input, as all_reduce; other ranks may pass a null output. In place on root when
  // output == input.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const CallOptions& options = {}) const;
  [[nodiscard]] Work start_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  int root, const StartOptions& options = {}) const;

  // output[q·count + i] on root = input[i] of rank q; other ranks may pass a null output. In place on root when
  // input == output + root·count.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              const CallOptions& options = {}) const;
  [[nodiscard]] Work start_gather(const void* input, void* output, std::size_t count, DataType type, int root,
                                  const StartOptions& options = {}) const;

  // output[i] = input[r·count + i] of root; other ranks may pass a null input. In place on root when
  // output == input + root·count.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               const CallOptions& options = {}) const;
  [[nodiscard]] Work start_scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                                   const StartOptions& options = {}) const;

  // output[q·count + i] = input_q[r·count + i]: block r of every rank comes to rank r. Never in place. P·N bytes a
  // rank.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_to_all(const void* input, void* output, std::size_t count, DataType type,
                                      const StartOptions& options = {}) const;

  // As their namesakes, with blocks of counts[q] elements for rank q, one after the other without gaps. Every rank
  // gives the same counts. In place as their namesakes, at the begin of block r.
  using Counts = std::span<const std::size_t>;
  void all_gather_v(const void* input, void* output, Counts counts, DataType type,
                    const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                        const StartOptions& options = {}) const;
  void reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                        const CallOptions& options = {}) const;
  [[nodiscard]] Work start_reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                                            const StartOptions& options = {}) const;
  void gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                const CallOptions& options = {}) const;
  [[nodiscard]] Work start_gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                                    const StartOptions& options = {}) const;
  void scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                 const CallOptions& options = {}) const;
  [[nodiscard]] Work start_scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                                     const StartOptions& options = {}) const;

  // leaves[q] elements go to rank q, arrives[q] come from it: arrives[q] here is leaves[r] there, or it is a
  // CollectiveMismatch. Never in place.
  void all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                    const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                                        const StartOptions& options = {}) const;

  // data on rank `from` = data on rank `to`: the n-th send from one rank to another meets the n-th recv; count, type
  // and tag are compared. They run beside other calls, in any order: wait for one before its data is used in another.
  // Up to 1 KiB a send returns without its recv; a longer one may wait, so an exchange needs start_send() or a
  // CallList.
  void send(const void* data, std::size_t count, DataType type, int to, const CallOptions& options = {}) const;
  [[nodiscard]] Work start_send(const void* data, std::size_t count, DataType type, int to,
                                const StartOptions& options = {}) const;
  void recv(void* data, std::size_t count, DataType type, int from, const CallOptions& options = {}) const;
  [[nodiscard]] Work start_recv(void* data, std::size_t count, DataType type, int from,
                                const StartOptions& options = {}) const;

  // Returns when every rank has called it. A call that was started before it is complete here, and may not be on
  // another rank.
  void barrier(const CallOptions& options = {}) const;
  [[nodiscard]] Work start_barrier(const StartOptions& options = {}) const;

  // The calls of a list, together. run() returns when all are done; the Work of start() is complete when all are.
  void run(const CallList& calls) const;
  [[nodiscard]] Work start(const CallList& calls, Progress progress = Progress::kThread) const;

  // A new group of the ranks that give the same colour, in the order of (key, rank); nothing for a negative colour.
  // Collective and blocking: every rank of this group calls it, as any operation in the same order. Memory from
  // allocate() of this group is as good in the new one, and calls of both may be in flight. The ranks meet in some
  // rounds of this group, however many they are.
  std::optional<Communicator> split(int color, int key = 0) const;

  // Memory that every rank of this machine can reach, aligned to 64 bytes and zeroed: operations on it copy nothing.
  // Local call; freed when the last owner drops it and no operation uses it. May outlive the communicator. Throws
  // IoError (71) when there is no more.
  std::shared_ptr<void> allocate(std::size_t bytes) const;
  // The same on device(), which every rank of the group reaches; of the cpu as above. It is handed out again when its
  // last owner drops it: streams must be through with it by then, as for cudaFree(). Throws InvalidArgument for a
  // device that is not the group's.
  std::shared_ptr<void> allocate(std::size_t bytes, const Device& on) const;

  // Whether all ranks of the group reach each other's memory: then allocate_shared() works, and a call is work for a
  // processor rather than a wait for a network. Alone: false.
  bool shares_memory() const;
  // The same memory for all ranks of the group: what one writes the others see after the next operation of both.
  // Collective and blocking; zeroed, aligned to a page; every rank keeps it until the last call that uses it. An
  // all_gather in place in it moves nothing and costs a barrier. Throws BackendError where ranks share no memory.
  std::shared_ptr<void> allocate_shared(std::size_t bytes) const;

  // Moves asynchronous operations on as far as they go without waiting. For threads that compute and must not block.
  void poll() const;

  // The last 1,024 calls of this rank, in all groups that record with this one, in their order. Local; reads some
  // 100 KB.
  std::vector<PastCall> history() const;

  // Ends the group for everybody: pending and later calls throw Aborted with this cause, on every rank.
  void abort(const std::string& cause) const;

 private:
  friend base::CoreShare core_share_of(const Communicator& group);  // of Reigen's own use
  struct Impl;
  explicit Communicator(std::shared_ptr<Impl> impl);
  struct Backends;
  Backends meet(Impl* child, const std::vector<int>& members) const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace reigen::comm

namespace reigen {
using comm::Communicator;
using comm::DataType;
using comm::ReduceOp;
using comm::Work;
}  // namespace reigen
