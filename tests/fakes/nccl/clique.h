// The ranks of one communicator of the stand-in, and how their kernels exchange data.
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace reigen::testing::stand_in {

enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kRecv };

struct Task {
  Kind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  double factor = 1;  // the factor of `op`, if the user made `op`
  int peer = 0;       // the root of a collective, the other rank of a message
};

std::size_t size_of(ncclDataType_t type);

// The data that all ranks share. `mutex` guards it.
struct Clique {
  explicit Clique(int ranks) : size(ranks), devices(static_cast<std::size_t>(ranks), -1) {}

  // A rank's part of a collective. The input is a copy, so that no rank reads another rank's memory.
  struct Part {
    Task task;
    std::vector<std::byte> input;
  };
  struct Meeting {
    std::vector<std::unique_ptr<Part>> parts;
    int arrived = 0;
  };
  struct Letter {
    std::vector<std::byte> data;
    bool taken = false;
  };

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  int gone = 0;  // ranks that are finalized or aborted
  std::vector<int> devices;
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Letter>>> letters;  // by from, to; not yet received
};

// One rank of a clique, as its kernels see it.
struct Member {
  std::shared_ptr<Clique> clique;
  int rank;
  int device;
  bool aborted = false;           // guarded by the clique's mutex
  std::uint64_t collectives = 0;  // number so far; only the stream's thread uses it
};

// Runs a kernel: collectives one after the other, all messages together. Returns early if the member is aborted.
void run(Member& member, const std::vector<Task>& tasks);

}  // namespace reigen::testing::stand_in
