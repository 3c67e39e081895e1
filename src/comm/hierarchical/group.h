// The smaller groups of which a hierarchical group is made, and what its operations share.
//
// Levels: `inside` the ranks of this machine over shared memory; `between` the ranks of this place on all machines, and
// `everybody`, both over the network. The store is the control channel of the whole: it names ranks by their numbers in
// the whole group where a level knows its own only.
// Thread rule: the driving thread, but for the counts of messages.
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
#include "comm/control/store_control.h"
#include "comm/hierarchical/layout.h"
#include "comm/hierarchical/plan.h"
#include "reigen/comm/options.h"

namespace reigen::comm::hierarchical {

// One of the smaller groups; without a backend where this rank is in none.
struct Part {
  std::unique_ptr<Backend> backend = {};
  std::vector<int> ranks = {};    // in the whole group, by the rank in this one
  std::string name = {};          // of the group
  std::uint64_t next = 0;         // call
  std::atomic<int> messages = 0;  // under way
};

// "of group "world.machine1" (rank 0 is rank 2, 1 is rank 3 of "world")".
std::string legend(const Part& part, const std::string& whole);

// The calls of a part differ, as this rank finds: which calls of the whole group these were is still to be said.
class PartMismatch : public CollectiveMismatch {
 public:
  using CollectiveMismatch::CollectiveMismatch;
};

struct Group {
  // `parent`: the group off which this one is split.
  Group(const GroupOptions& group_options, Layout group_layout, const Group* parent)
      : options(group_options),
        layout(std::move(group_layout)),
        control(group_options, control::Watch::kInTheEngine, parent == nullptr ? nullptr : &parent->control) {}

  Part& part(Level level) { return level == Level::kInside ? inside : level == Level::kBetween ? between : everybody; }
  std::vector<const Part*> parts() const;
  // An area is kept for later calls: one call of the group runs at a time.
  std::byte* scratch(int area, std::size_t bytes);
  // Runs `action` on a part; what it throws is thrown in terms of the whole group. `what`: the call.
  using Words = std::function<std::string()>;
  void translated(const Part& part, const Words& what, const std::function<void()>& action) const;
  // Throws what another rank ended the group with, as far as any part knows.
  void throw_if_ended(const Words& what) const;
  void publish_abort(const AbortCause& cause);

  const GroupOptions options;
  const Layout layout;
  control::StoreControl control;
  Part inside;
  Part everybody;
  Part between;                 // a child of `everybody`
  Part* current = nullptr;      // where the collective that runs waits
  std::uint64_t completed = 0;  // calls
  // By kind and the other rank. Of the calling thread.
  std::map<std::pair<OperationKind, int>, std::uint64_t> next_message = {};
  // Of the last collective, stage after stage: "fused+direct+fused". Any thread.
  std::string last_algorithm() const;
  void note_algorithm(const std::string& stages);

 private:
  struct Area {
    std::shared_ptr<void> memory = {};
    std::size_t bytes = 0;
  };
  Area areas_[kScratchAreas];
  mutable std::mutex mutex_;  // of what follows
  std::string last_algorithm_;
};

}  // namespace reigen::comm::hierarchical
