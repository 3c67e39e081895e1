// Options of groups and of calls.
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

// Which threads advance a started operation.
enum class Progress {
  kThread,  // the rank's progress thread too: the operation overlaps with the caller's work and costs a wake-up
  kCaller,  // only threads inside start_NAME(), poll() and wait(), of which only wait() waits: for programs that keep
            // all cores busy and call poll() often
};

inline constexpr std::size_t kLongestTag = 47;  // characters

struct CallOptions {
  // Shown in every error and compared between ranks, e.g. "step 12 bucket 3"; at most kLongestTag characters.
  std::string tag = {};
  double factor = 1;  // for sums of floats: multiplies this rank's input (16-bit types: in fp32); may differ by rank
  // For GPU memory: the call begins after the work that is now on this stream, by default on the device's default
  // stream. For a call without buffers (a barrier, a rank without a block), the device of `after` also decides
  // whether the call is on the host's memory or on the device's; otherwise the buffers decide.
  Stream after = {};
};

// Options of start_NAME().
struct StartOptions {
  Progress progress = Progress::kThread;
  std::string tag = {};  // this and the next two: as in CallOptions
  double factor = 1;
  Stream after = {};
};

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<store::Store> store = nullptr;  // may be null for a group of one with backend "auto" or "self"
  std::string name = "world";                     // in messages; prefix of its store keys: two groups need two names
  // The backend for the host's memory: auto, self, shared_memory, tcp, mpi or hierarchical. "auto" takes
  // shared_memory if all ranks are on one machine, `network` if no two ranks share a machine, and hierarchical
  // otherwise. If this names a backend for a device's memory ("nccl"), it is taken as `device_backend`.
  std::string backend = "auto";
  // The GPU whose memory the group carries in addition to the host's; the cpu: none. The index is taken modulo the
  // number of GPUs that the rank sees, because a scheduler may show each rank only one GPU. Without an index, the
  // rank's number is the index.
  Device device = {};
  // The backend for the device's memory: cuda_ipc (ranks of one machine, which may share a GPU) or nccl. "auto" takes
  // cuda_ipc if the ranks also share the host's memory, else nccl.
  std::string device_backend = "auto";
  std::string network = "tcp";  // the backend between machines: tcp or mpi
  // Ranks that can open each other's memory count as one machine, unless their machine_id differs: so one machine can
  // play several. Empty on all ranks: only whether they can open the memory decides.
  std::string machine_id = {};
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);       // longest wait for all ranks to join
  std::chrono::milliseconds report_after = std::chrono::seconds(30);       // a longer wait for a live rank is logged
  std::chrono::milliseconds timeout = std::chrono::minutes(10);            // a longer wait for it is a Timeout
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);  // a rank that is silent longer is lost
  // Rules for which algorithm runs which operation, e.g. "all_reduce:ring,broadcast:two_shot@>1M"
  // (docs/algorithms.md); "tuned": the rules that `reigen tune` found. For the backends tcp and shared_memory, and
  // for auto and hierarchical, which are made of these two: each level takes the rules that name an algorithm of its
  // own. Must be the same on every rank.
  std::string algorithms = {};
  int segments = 0;     // over tcp: pieces into which an algorithm cuts data, if it can; 0: by size. Same on every rank
  int connections = 1;  // over tcp: sockets that share a large message between two ranks
  std::shared_ptr<store::Store> meeting = nullptr;  // for Reigen's own use: where the ranks meet; null: in `store`
  // Called about once a second while the group waits for ranks to join. An error that it throws ends the forming of
  // the group.
  std::function<void()> while_forming = {};
  std::shared_ptr<flight::Recorder> recorder = nullptr;  // this rank's flight record; null: the group has its own
  const BackendEntry* engine = nullptr;  // for Reigen's own tests: used in place of the backend that `backend` names
};

// The options that can be given as text: in the section comm of a training's configuration, and by REIGEN_COMM_<KEY>.
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
