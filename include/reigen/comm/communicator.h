// A group of P ranks that communicate. This rank has the number r in the group.
//
// Every rank calls the same operations in the same order with the same count, type, reduction and root. The ranks
// compare their calls. If the calls differ, all ranks throw CollectiveMismatch, whose text names two different calls.
// Each of Reigen's algorithms adds in a fixed order, by default in rank order (docs/algorithms.md), so every rank and
// every run gets the same bits. With the backends mpi and nccl, the MPI library or NCCL chooses the order of the
// additions.
//
// Each operation has two forms. NAME() runs on the caller's thread and returns when the operation is done. start_NAME()
// returns at once: the operation then runs on the rank's progress thread, on a thread that waits for its Work, or
// inside poll(). Operations of one group begin and complete in the order of the calls. run() and start() take a list of
// calls; the ranks wait for each other once for the whole list (call_list.h). No call waits for ever (GroupOptions has
// the time limits). A call throws PeerLost within a second after another rank died, and within 10 s after another rank
// was stopped. If another rank lives but does not make the call, a warning names that rank after 30 s, and the call
// throws Timeout after 10 minutes.
//
// The calls of a group work on the host's memory, and also on the memory of one GPU if GroupOptions::device names one.
// Each kind of memory has its own backend and its own order of calls. The memory in which a call's buffers lie decides
// which backend runs the call; a call with buffers in both kinds of memory throws InvalidArgument. A call on a GPU's
// memory begins after the work that is on the stream CallOptions::after when the call is made.
//
// A group and all groups that are split off it, directly or through other groups, form a family. A rank has one
// progress thread for each family. An error in one group ends all groups of the family on every rank within a second,
// also when a rank waits in another group of the family. In each group, the first call that fails throws the original
// error. If this error is a PeerLost, its rank is the lost rank's number in the group of that call, or -1 if the lost
// rank is not in this group. Every further call throws Aborted with the first cause. Leaving a group does not end any
// other group.
//
// Thread rule: a rank makes the calls of one group one after the other, in the same order as all other ranks. It may
// make calls of different groups at the same time. A Communicator is a handle: copies refer to the same group. A rank
// leaves the group when its last copy is destroyed.
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
  Communicator();  // a group of this rank alone: rank 0 of 1
  explicit Communicator(
      const GroupOptions& options);  // blocks until all ranks have joined; throws Timeout naming the missing ranks

  int rank() const;
  int size() const;
  const std::string& name() const;
  // The names of the backends for the host's memory and for the device's memory. The second name is empty if the group
  // has no device.
  const std::string& backend() const;
  const std::string& device_backend() const;
  // The device on whose memory the group's calls work in addition to the host's memory, or the cpu if there is no such
  // device.
  Device device() const;
  // The algorithm of this rank's last completed collective on memory of the kind `memory` (docs/algorithms.md). Tools
  // and tests use it.
  std::string last_algorithm(DeviceKind memory = DeviceKind::kCpu) const;

  // output[i] = op over the input[i] of all ranks, for i < count. The call is in place when output == input; otherwise
  // the two buffers must not overlap. N is the number of bytes of `count` elements, here and below. On memory from
  // allocate() the operation is one pass with 2·N bytes of traffic per rank; other memory is copied through a staging
  // buffer, in chunks. start_all_reduce() makes the same call and returns its Work at once, as does every start_NAME()
  // below.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                      const StartOptions& options = {}) const;

  // data on every rank = data on root. Traffic: N bytes per rank.
  void broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options = {}) const;
  [[nodiscard]] Work start_broadcast(void* data, std::size_t count, DataType type, int root,
                                     const StartOptions& options = {}) const;

  // output[q·count + i] = input[i] of rank q. In place when input == output + r·count. Traffic: P·N bytes per rank.
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_gather(const void* input, void* output, std::size_t count, DataType type,
                                      const StartOptions& options = {}) const;

  // output[i] = op over the input[r·count + i] of all ranks, for i < count: rank r gets the r-th of P blocks. In place
  // when output == input + r·count; otherwise the buffers must not overlap. A rank reads P·N bytes and writes N bytes.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const CallOptions& options = {}) const;
  [[nodiscard]] Work start_reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                          ReduceOp op, const StartOptions& options = {}) const;

  // output[i] on root = op over the input[i] of all ranks, as in all_reduce(). Other ranks may pass a null output. In
  // place on root when output == input.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const CallOptions& options = {}) const;
  [[nodiscard]] Work start_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  int root, const StartOptions& options = {}) const;

  // output[q·count + i] on root = input[i] of rank q. Other ranks may pass a null output. In place on root when
  // input == output + root·count.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              const CallOptions& options = {}) const;
  [[nodiscard]] Work start_gather(const void* input, void* output, std::size_t count, DataType type, int root,
                                  const StartOptions& options = {}) const;

  // output[i] = input[r·count + i] of root, on the rank with number r. Other ranks may pass a null input. In place on
  // root when
  // output == input + root·count.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               const CallOptions& options = {}) const;
  [[nodiscard]] Work start_scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                                   const StartOptions& options = {}) const;

  // output[q·count + i] = input[r·count + i] of rank q: block r of every rank goes to rank r. Never in place. Traffic:
  // P·N bytes per rank, for P ranks and N bytes of `count` elements.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_to_all(const void* input, void* output, std::size_t count, DataType type,
                                      const StartOptions& options = {}) const;

  // NAME_v() is NAME() with blocks of different sizes: counts[q] elements for rank q, one block after the other without
  // gaps. Every rank passes the same counts. The call may be in place if NAME() may be in place: the smaller buffer
  // then begins where block r of the larger buffer begins.
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

  // leaves[q] elements go to rank q, and arrives[q] elements come from rank q. arrives[q] on rank r must equal
  // leaves[r] on rank q; otherwise the call throws CollectiveMismatch. Never in place.
  void all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                    const CallOptions& options = {}) const;
  [[nodiscard]] Work start_all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                                        const StartOptions& options = {}) const;

  // The data that recv() writes on rank `to` are the data that send() read on rank `from`. The n-th send from rank A to
  // rank B matches the n-th recv on rank B from rank A; the ranks compare count, type and tag. Sends and recvs run at
  // the same time as other calls, in any order: wait for them before another call uses their data. A send of up to 1
  // KiB does not wait for its recv. A longer send may wait for its recv. So two ranks that send each other longer data
  // must use start_send() or a CallList.
  void send(const void* data, std::size_t count, DataType type, int to, const CallOptions& options = {}) const;
  [[nodiscard]] Work start_send(const void* data, std::size_t count, DataType type, int to,
                                const StartOptions& options = {}) const;
  void recv(void* data, std::size_t count, DataType type, int from, const CallOptions& options = {}) const;
  [[nodiscard]] Work start_recv(void* data, std::size_t count, DataType type, int from,
                                const StartOptions& options = {}) const;

  // Returns when every rank has called barrier(). A collective on the same kind of memory that this rank started before
  // the barrier is then complete on this rank, but perhaps not on other ranks.
  void barrier(const CallOptions& options = {}) const;
  [[nodiscard]] Work start_barrier(const StartOptions& options = {}) const;

  // Makes the calls of a list together. run() returns when all of them are done; the Work of start() is complete when
  // all of them are complete.
  void run(const CallList& calls) const;
  [[nodiscard]] Work start(const CallList& calls, Progress progress = Progress::kThread) const;

  // The ranks that pass the same `color` form a new group, in which they are ordered by (key, rank). A rank that passes
  // a negative `color` gets no group. Collective and blocking: every rank of this group calls it, in the same order as
  // its other operations. Memory from allocate() of this group may be used in calls of the new group, at the same cost.
  // Calls of both groups may be in flight at the same time. If a rank cannot make its new group, all ranks throw its
  // error. Cost: a few rounds of small messages between all ranks of this group; more ranks need no more rounds.
  std::optional<Communicator> split(int color, int key = 0) const;

  // Allocates memory that every rank on this machine can access, aligned to 64 bytes and zeroed. Operations on this
  // memory make no extra copies. The function does not communicate. The memory is freed when its last shared_ptr is
  // gone and no operation uses it; it may outlive the communicator. Throws IoError (exit code 71) when no memory is
  // left.
  std::shared_ptr<void> allocate(std::size_t bytes) const;
  // Allocates memory on the device `on`, which must be device() or the cpu. For the cpu this function is the same as
  // the one above. Over cuda_ipc every rank of the group can access the memory. When the last shared_ptr of the memory
  // is gone, allocate() may return the memory again. So all streams must have finished their work on the memory before
  // its last shared_ptr goes, as before cudaFree(). Throws InvalidArgument for a device that is neither device() nor
  // the cpu.
  std::shared_ptr<void> allocate(std::size_t bytes, const Device& on) const;

  // Whether all ranks of the group can access each other's host memory. If so, allocate_shared() works, and a running
  // call keeps a processor busy instead of waiting for a network. The result is false with the backend "self".
  bool shares_memory() const;
  // Allocates one block of memory that all ranks of the group map. After two ranks have taken part in an operation,
  // each of the two sees the data that the other wrote to the block before the operation. Collective and blocking. The
  // block is zeroed and aligned to a page. Every rank must keep the returned pointer until the last call that uses the
  // block is complete. An in-place all_gather in this memory moves no data and costs as much as a barrier. Throws
  // BackendError if the ranks cannot share memory.
  std::shared_ptr<void> allocate_shared(std::size_t bytes) const;

  // Advances the started operations as far as possible without waiting. Use it on threads that compute and must not
  // block.
  void poll() const;

  // The number of bytes that this rank's calls of this group on the host's memory have given to network connections so
  // far. A group that was split off this one counts by itself. The number is 0 if the ranks share memory; connections
  // between ranks of one machine count as network connections. No number if a library (MPI) moves the data. Any thread
  // may call it at any time.
  std::optional<std::uint64_t> network_bytes() const;

  // The last 1,024 calls of this rank, in the order of the calls. They come from the flight record
  // (docs/flight_recorder.md), which this group shares with all groups that are related to it by split(). Reads about
  // 100 KB, and does not communicate.
  std::vector<PastCall> history() const;

  // Ends this group, and all groups that are related to it by split(), on every rank. Their pending and later calls
  // throw Aborted with this cause.
  void abort(const std::string& cause) const;

 private:
  friend base::CoreShare core_share_of(const Communicator& group);  // for Reigen's own use
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
