// Lists of calls that a rank makes together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reigen/comm/options.h"
#include "reigen/comm/types.h"

namespace reigen::comm {

struct Call;

// A list of calls of one group. The ranks wait for each other once for the whole list. No call of the list waits until
// another call of the list is complete. Use a list to exchange data by sends and recvs, or to sum many small tensors.
//
//   comm::CallList calls;
//   calls.send(a, n, type, next);
//   calls.recv(b, n, type, previous);
//   world.run(calls);
//
// The buffers of the calls must stay valid until run() returns or the Work of start() is complete. Blocks of
// Communicator::allocate() are an exception: the caller may drop them at any time after start().
//
// A list is a value. It may be run again, by any group that has the ranks that the list names. Each function below adds
// a call of the Communicator function with the same name. If a call is invalid, run() and start() throw before any call
// of the list has begun. Collectives run in the order of the list. Sends and recvs run at the same time as the
// collectives.
// Thread rule: one thread at a time may use a list.
class CallList {
 public:
  using Counts = std::span<const std::size_t>;

  CallList();
  ~CallList();
  CallList(CallList&& other) noexcept;
  CallList& operator=(CallList&& other) noexcept;
  CallList(const CallList& other);
  CallList& operator=(const CallList& other);

  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& options = {});
  void broadcast(void* data, std::size_t count, DataType type, int root, const CallOptions& options = {});
  void all_gather(const void* input, void* output, std::size_t count, DataType type, const CallOptions& options = {});
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const CallOptions& options = {});
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const CallOptions& options = {});
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              const CallOptions& options = {});
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               const CallOptions& options = {});
  void all_to_all(const void* input, void* output, std::size_t count, DataType type, const CallOptions& options = {});
  void all_gather_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& options = {});
  void reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op,
                        const CallOptions& options = {});
  void gather_v(const void* input, void* output, Counts counts, DataType type, int root,
                const CallOptions& options = {});
  void scatter_v(const void* input, void* output, Counts counts, DataType type, int root,
                 const CallOptions& options = {});
  void all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type,
                    const CallOptions& options = {});
  void send(const void* data, std::size_t count, DataType type, int to, const CallOptions& options = {});
  void recv(void* data, std::size_t count, DataType type, int from, const CallOptions& options = {});
  void barrier(const CallOptions& options = {});

  bool empty() const { return size() == 0; }
  std::size_t size() const;

 private:
  friend class Communicator;
  std::vector<Call> calls_;
};

}  // namespace reigen::comm

namespace reigen {
using comm::CallList;
}  // namespace reigen
