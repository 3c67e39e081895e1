// Options of groups and of calls.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
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
  // The rank's progress thread, and threads inside start_NAME(), poll() and wait(). The operation continues while the
  // caller does other work, but the progress thread must first wake up.
  kThread,
  // Only threads inside start_NAME(), poll() and wait(). Of these functions only wait() blocks. This value is for
  // programs that keep all cores busy and call poll() often.
  kCaller,
};

inline constexpr std::size_t kLongestTag = 47;  // characters

struct CallOptions {
  // A text that every error of the call shows and that the ranks compare, e.g. "step 12 bucket 3"; at most kLongestTag
  // characters.
  std::string tag = {};
  // In sums of floats, this rank's input is multiplied by this factor. Products of 16-bit types are computed in fp32.
  // The factor may differ between ranks.
  double factor = 1;
  // A call on GPU memory begins after the work that is on this stream when the call is made. Without a stream, it
  // begins after the work on the device's default stream. The buffers of a call decide whether the call is on the
  // host's memory or on the device's. For a call without buffers (a barrier, or a rank whose block is empty), the
  // device of `after` decides.
  Stream after = {};
};

// Options of start_NAME().
struct StartOptions {
  Progress progress = Progress::kThread;
  std::string tag = {};  // `tag`, `factor` and `after` are as in CallOptions
  double factor = 1;
  Stream after = {};
};

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<store::Store> store = nullptr;  // may be null only for one rank with backend "auto" or "self"
  std::string name = "world";                     // appears in messages and store keys; each group needs its own name
  // The backend for the host's memory: auto, self, shared_memory, tcp, mpi or hierarchical. "auto" chooses
  // shared_memory if all ranks are on one machine. It chooses the backend that `network` names if no two ranks are on
  // the same machine. Otherwise it chooses hierarchical. If the name is that of a backend for a device's memory
  // ("nccl"), it counts as `device_backend`, and the host's backend is "auto".
  std::string backend = "auto";
  // The GPU on whose memory the group's calls work in addition to the host's memory. The cpu means that the group has
  // no GPU. Without an index, the rank takes the GPU `local_rank` modulo the number of GPUs that the rank sees:
  // several ranks may share a GPU, and a scheduler may show each rank only one GPU.
  Device device = {};
  std::optional<int> local_rank = {};  // the rank's number on its machine, which chooses the GPU; not set: `rank`
  // The backend for the device's memory: cuda_ipc (ranks of one machine, which may share a GPU) or nccl. "auto" chooses
  // cuda_ipc if the ranks also share the host's memory, otherwise nccl.
  std::string device_backend = "auto";
  std::string network = "tcp";  // the backend between machines: tcp or mpi
  // Ranks that can open each other's memory count as ranks of one machine, unless their machine_id differs. So the
  // ranks of one computer can act as ranks of several machines. If machine_id is empty on all ranks, only the ability
  // to open the memory decides.
  std::string machine_id = {};
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);  // longest wait for all ranks to join
  std::chrono::milliseconds report_after = std::chrono::seconds(30);  // longer waits for a live rank are logged
  std::chrono::milliseconds timeout = std::chrono::minutes(10);       // longer waits for a live rank throw Timeout
  // A rank that sends no heartbeat for this time counts as lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);
  // Rules that choose the algorithm of an operation, e.g. "all_reduce:ring,broadcast:two_shot@>1M"
  // (docs/algorithms.md). "tuned" stands for the rules that `reigen tune` found. The rules apply to the backends tcp
  // and shared_memory, and to auto and hierarchical, which use these two. Each of the two backends takes the rules that
  // name one of its own algorithms. The rules must be the same on every rank.
  std::string algorithms = {};
  // For the backend tcp: the number of pieces into which an algorithm cuts the data of a call. It must be the same on
  // every rank. 0 means that the size of the data decides.
  int segments = 0;
  int connections = 1;  // for the backend tcp: the number of sockets that share a large message between two ranks
  std::shared_ptr<store::Store> meeting = nullptr;  // for Reigen's own use: the store for joining; if null, `store`
  // Called about once a second while the group waits for ranks to join. If this function throws an error, the group is
  // not formed.
  std::function<void()> while_forming = {};
  std::shared_ptr<flight::Recorder> recorder = nullptr;  // this rank's flight record; if null, the group makes one
  const BackendEntry* engine = nullptr;  // for Reigen's own tests: a backend that replaces the one that `backend` names
};

// The options that a user can set as text: in the section comm of a training's configuration, or by REIGEN_COMM_<KEY>.
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
