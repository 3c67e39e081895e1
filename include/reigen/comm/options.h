// What a group and a call can be told.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "reigen/base/fields.h"
#include "reigen/device/device.h"
#include "reigen/store/store.h"

namespace reigen::flight {
class Recorder;
}

namespace reigen::comm {

struct BackendEntry;

// Who drives a started operation.
enum class Progress {
  kThread,  // the rank's progress thread: it overlaps with whatever the caller does, and costs a wake-up
  kCaller,  // nobody but the call itself, poll() and wait(), each as far as it goes without waiting: for threads that
            // keep all cores busy and call poll() often
};

inline constexpr std::size_t kLongestTag = 47;  // characters

struct CallOptions {
  // Shown in every error and compared between ranks, e.g. "step 12 bucket 3"; at most kLongestTag characters.
  std::string tag = {};
  double factor = 1;  // sums of floats: this rank's input is multiplied by it (in fp32 for 16 bits); may differ by rank
  // Of a GPU: the call begins after what this stream has to do until now. Its device also says whose memory a call
  // takes that has none (a barrier, a rank without a block); else the buffers say it.
  Stream after = {};
};

// Options of start_NAME().
struct StartOptions {
  Progress progress = Progress::kThread;
  std::string tag = {};  // as CallOptions
  double factor = 1;
  Stream after = {};
};

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<store::Store> store = nullptr;  // may be null for a group of one (but for backend shared_memory)
  std::string name = "world";                     // in messages, and the store prefix: two groups need two names
  // What carries the host's memory. "auto": shared memory on one machine, `network` where no two ranks share one,
  // hierarchical for both; or self, shared_memory, tcp, mpi, hierarchical. The name of one that carries a device's
  // ("nccl") is taken for `device_backend`.
  std::string backend = "auto";
  // The GPU whose memory the group carries as well, beside the host's; the cpu: none. An index counts
  // modulo the GPUs that the rank sees, as a scheduler may show each rank one; without an index: the rank's number.
  Device device = {};
  // What carries the device's memory: cuda_ipc between ranks of one machine, which may share a GPU; nccl. "auto":
  // cuda_ipc where ranks share the host's memory too, else nccl.
  std::string device_backend = "auto";
  std::string network = "tcp";  // between machines: tcp, mpi
  // Ranks that can open each other's memory share a machine. Where these words differ they do not: a machine that plays
  // several. Empty: what can be opened alone decides.
  std::string machine_id = {};
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);  // for all ranks to come
  std::chrono::milliseconds report_after = std::chrono::seconds(30);  // a live rank keeps the others waiting: say so
  std::chrono::milliseconds timeout = std::chrono::minutes(10);       // ... and end it
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);  // no sign of life: stopped or unreachable
  // Which algorithm runs what, e.g. "all_reduce:ring,broadcast:two_shot@>1M" (docs/algorithms.md); "tuned": what
  // `reigen tune` found. Backends tcp, shared_memory and those made of them, where each level takes the rules that name
  // its own. Must be the same on every rank.
  std::string algorithms = {};
  int segments = 0;     // backend tcp: into how many pieces what can be cut is cut; 0: by size. The same on every rank
  int connections = 1;  // backend tcp: sockets that share a large message between two ranks
  std::shared_ptr<store::Store> meeting = nullptr;  // where the ranks meet, of Reigen's own use; null: in `store`
  // Called about once a second while ranks are waited for to come; what it throws ends the forming of the group.
  std::function<void()> while_forming = {};
  std::shared_ptr<flight::Recorder> recorder = nullptr;  // of this rank's operations; null: the group has its own
  const BackendEntry* engine = nullptr;  // of Reigen's own tests: one that no name finds, in place of `backend`'s
};

// What of it can be told as text: by the section comm of a training, by REIGEN_COMM_<KEY>, and in C by `more`.
inline void describe(Fields& fields, GroupOptions& o) {
  constexpr double kLongest = 1e9;
  fields.add("backend", o.backend, "through what the ranks talk");
  fields.add("algorithms", o.algorithms,
             "which algorithm runs what, e.g. all_reduce:ring@>1M; tuned: by reigen tune; empty: by size");
  fields.add("network", o.network, {"tcp", "mpi"}, "through what machines talk");
  fields.add("segments", o.segments, at_least(0).up_to(1e6),
             "over tcp, into how many pieces what can be cut is cut; 0: by size");
  fields.add("connections", o.connections, at_least(1).up_to(64),
             "over tcp, sockets that share a large message between two ranks");
  fields
      .add("machine_id", o.machine_id,
           "ranks with another word count as ranks of other machines; empty: what they can open decides")
      .may_differ = true;
  fields.add("join_timeout", o.join_timeout, above(0).up_to(kLongest),
             "seconds that ranks wait for each other at the start");
  fields.add("heartbeat_timeout", o.heartbeat_timeout, above(0).up_to(kLongest),
             "seconds without a sign of life after which a rank is lost: stopped, in a debugger, its machine frozen");
  fields.add("report_after", o.report_after, above(0).up_to(kLongest),
             "seconds after which a warning names the ranks for which others wait");
  fields.add("timeout", o.timeout, above(0).up_to(kLongest),
             "seconds that ranks wait for one that lives but does not come");
}

}  // namespace reigen::comm
