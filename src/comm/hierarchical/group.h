// The smaller groups (parts) of which a hierarchical group is made, and the state that its operations share.
//
// The parts `inside` have the ranks of this machine and use shared memory. A rank's place is its index among the ranks
// of its machine (layout.h). The part `between` has the ranks of all machines that have the same place as this rank.
// The part `everybody` has all ranks. `between` and `everybody` use the network. The control channel of the whole group
// goes through the store, and names ranks by their numbers in the whole group. Each part numbers its own ranks from 0.
// Thread rule: only the driver thread. Any thread may use Part::messages; comments name the other exceptions.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/backend.h"
#include "comm/call/in_flight.h"
#include "comm/control/store_control.h"
#include "comm/hierarchical/layout.h"
#include "comm/hierarchical/plan.h"
#include "reigen/comm/options.h"

namespace reigen::comm::hierarchical {

// The number of collectives of a group that may be in flight at the same time. Each of them has a lane: a part `inside`
// (a group over shared memory) and scratch memory of its own. Collective number n uses lane n mod kLanes.
inline constexpr std::size_t kLanes = 2;
inline std::size_t lane_of(std::uint64_t sequence) { return sequence % kLanes; }

// One of the smaller groups. It has no backend if this rank is not in it.
struct Part {
  std::unique_ptr<Backend> backend = {};
  std::vector<int> ranks = {};    // ranks[i]: the number in the whole group of rank i of this part
  std::string name = {};          // the name of this smaller group
  std::uint64_t next = 0;         // the number of this part's next collective
  std::atomic<int> messages = 0;  // number of sends and recvs in flight
};

// Says in the text of an error how the ranks of a part are numbered in the whole group: `of group "world.machine1"
// (rank 0 is rank 2, 1 is rank 3 of "world")`.
std::string legend(const Part& part, const std::string& whole);

// This rank has found that the ranks of a part (a smaller group) made different calls in this part. It is not known yet
// which calls of the whole group differ.
class PartMismatch : public CollectiveMismatch {
 public:
  using CollectiveMismatch::CollectiveMismatch;
};

struct Group {
  // `parent`: the group from which this group is split, or null.
  Group(const GroupOptions& group_options, Layout group_layout, const Group* parent)
      : options(group_options),
        layout(std::move(group_layout)),
        in_flight(group_options.rank, group_options.size, kLanes),
        control(group_options, control::Watch::kInTheEngine, parent == nullptr ? nullptr : &parent->control) {}

  Part& part(Level level, std::size_t lane) {
    return level == Level::kInside ? inside[lane] : level == Level::kBetween ? between : everybody;
  }
  std::vector<const Part*> parts() const;
  // Returns at least `bytes` bytes of memory for intermediate results of a collective. `lane` is the lane of the
  // collective. The group keeps kScratchAreas blocks of such memory for each lane, and later collectives of the lane
  // reuse them. `area` is the number of the block.
  std::byte* scratch(std::size_t lane, int area, std::size_t bytes);
  // Runs `action`, which works on a part, and rethrows its errors with the rank numbers of the whole group. `what`
  // describes the call.
  using Words = std::function<std::string()>;
  void translated(const Part& part, const Words& what, const std::function<void()>& action) const;
  // Throws the error with which another rank ended the group, if this rank has received it in any part.
  void throw_if_ended(const Words& what) const;
  void publish_abort(const AbortCause& cause);

  const GroupOptions options;
  const Layout layout;
  InFlight in_flight;
  control::StoreControl control;
  Part inside[kLanes];  // one for each lane: while a call uses the network, the next call uses the other lane's part
  Part everybody;
  Part between;  // split from `everybody`
  // The number of the collective that may begin calls over the network now. All ranks begin these calls in the order of
  // the collectives.
  std::uint64_t network_turn = 0;
  const Part* waits_in[kLanes] = {};  // the part in which the collective of the lane waits, or null
  // The number of the next message, by kind (send or recv) and by the other rank. Only the thread that makes a call
  // uses it.
  std::map<std::pair<OperationKind, int>, std::uint64_t> next_message = {};
  // The algorithms of the last collective, one for each stage: "fused+direct+fused". Any thread may call
  // last_algorithm().
  std::string last_algorithm() const;
  void note_algorithm(const std::string& stages);

 private:
  struct Area {
    std::shared_ptr<void> memory = {};
    std::size_t bytes = 0;
  };
  Area areas_[kLanes][kScratchAreas];
  mutable std::mutex mutex_;  // guards last_algorithm_
  std::string last_algorithm_;
};

}  // namespace reigen::comm::hierarchical
