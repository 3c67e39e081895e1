#include "comm/shared_memory/shared_memory_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/machine/cores.h"
#include "comm/shared_memory/collectives.h"
#include "comm/shared_memory/group.h"
#include "comm/shared_memory/message.h"

namespace reigen::comm::shared_memory {

namespace {

constexpr std::size_t kPageBytes = 4096;
// A device wakes no thread when it is done, so a waiting thread asks it repeatedly. The pause between two questions is
// a tenth of the wait so far, but at least kGlance and at most kLongGlance. In the pauses the thread spins until the
// wait has lasted kPatience, and then sleeps. Where ranks share processors it always sleeps. Even a short sleep takes
// 60 us.
constexpr auto kPatience = std::chrono::microseconds(600);
constexpr auto kGlance = std::chrono::microseconds(20);
constexpr auto kLongGlance = std::chrono::milliseconds(1);
constexpr auto kDrainWithin = std::chrono::seconds(2);
constexpr auto kFlushWithin = std::chrono::seconds(2);

class SharedMemoryBackend : public Backend {
 public:
  SharedMemoryBackend(const GroupOptions& options, std::shared_ptr<Heap> heap, std::shared_ptr<Medium> medium,
                      const Group* whole = nullptr)
      : name_(medium ? medium->name() : "shared_memory"), group_(options, std::move(heap), std::move(medium), whole) {}

  SharedMemoryBackend(const GroupOptions& options, Group& first) : name_("shared_memory"), group_(options, first) {}

  Group& group() { return group_; }
  const std::string& name() const override { return name_; }
  std::string last_algorithm() const override { return shared_memory::name_of(pipeline_.last.load()); }
  void require_offered(const Call& call) const override {
    const std::size_t most = group_.inline_bytes() / sizeof(std::uint64_t);
    REIGEN_CHECK(call.kind != OperationKind::kAllToAllV || call.counts.size() <= most,
                 "[all_to_all_v] too many ranks on one machine\n  got: {}   expected: at most {}", call.counts.size(),
                 most);
    REIGEN_CHECK(!medium() || group_.size() <= medium()->most_ranks(),
                 "[{}] too many ranks for one call on {}\n  got: {}   expected: at most {}", comm::name_of(call.kind),
                 to_string(device()), group_.size(), medium()->most_ranks());
  }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    if (call.kind == OperationKind::kSend) return std::make_unique<Send>(group_, pair_with(call.root), call);
    if (call.kind == OperationKind::kRecv) return std::make_unique<Recv>(group_, pair_with(call.root), call);
    return std::make_unique<Collective>(group_, pipeline_, call, sequence);
  }
  base::CoreShare core_share() const override { return group_.core_share(); }
  bool shares_memory() const override { return !medium(); }
  std::optional<std::uint64_t> network_bytes() const override { return 0; }
  std::shared_ptr<Before> mark(const Stream& after) override { return medium() ? medium()->mark(after) : nullptr; }
  Device device() const override { return medium() ? medium()->device() : Device::cpu(); }
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    const auto busy = medium() ? medium()->busy_for() : std::chrono::nanoseconds(0);
    if (busy.count() == 0) return group_.sleep(ready, limit);
    const std::chrono::nanoseconds pause = std::clamp<std::chrono::nanoseconds>(busy / 10, kGlance, kLongGlance);
    if (busy > kPatience || !both_may_spin_) return group_.sleep(ready, std::min(limit, pause));
    const Deadline glance = Deadline::after(std::min(limit, pause));
    while (!ready() && !glance.expired()) std::this_thread::yield();
  }
  void wake() override { group_.ring_own(); }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    static_cast<const CheckedOperation&>(operation).check_peers(waited);
  }
  void throw_if_ended() override { group_.throw_if_aborted(); }
  void heartbeat() override { group_.page().heartbeat.fetch_add(1); }
  void leave() override {
    flush();
    group_.leave();
  }
  void publish_abort(const AbortCause& cause) override {
    aborted_ = true;
    group_.publish_abort(cause);
    // After drain() has succeeded, the device of this rank no longer uses any rank's memory for this group.
    if (medium() && !medium()->drain(kDrainWithin)) {
      base::log_warning("group \"{}\": the device still works on an operation that was ended", group_.options().name);
    }
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return group_.heap().allocate(bytes); }
  Common create_common(std::size_t bytes) override {
    if (medium()) return Backend::create_common(bytes);
    auto segment = Segment::create((std::max<std::size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes);
    const SegmentAddress& at = segment->address();
    const std::string word = fmt::format("{} {} {} {}", at.pid, at.fd, at.inode, at.size);
    return {group_.heap().add_common(std::move(segment), group_.options().name), word};
  }
  std::shared_ptr<void> open_common(const std::string& word) override {
    SegmentAddress address;
    std::istringstream in(word);
    in >> address.pid >> address.fd >> address.inode >> address.size;
    return group_.heap().add_common(Segment::open(address), group_.options().name);
  }
  std::shared_ptr<void> hold(const void* pointer) override { return group_.heap().hold(pointer); }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& /*members*/) override {
    return std::make_unique<SharedMemoryBackend>(options, group_.heap().shared_from_this(), medium(), &group_);
  }

 private:
  const std::shared_ptr<Medium>& medium() const { return group_.medium(); }
  // On a device, an inline message lies in memory of this rank until the other rank has taken it. So before it leaves,
  // this rank waits up to kFlushWithin until all ranks that are alive have taken their messages.
  void flush() {
    if (!medium() || aborted_) return;
    const auto is_taken = [&](int q) {
      const RankState state = group_.page_of(q).state.load();
      return state != RankState::kAlive || group_.box(q, group_.rank()).taken.load() >= pair_with(q).next_send;
    };
    const Deadline deadline = Deadline::after(kFlushWithin);
    for (int q = 0; q < group_.size(); ++q) {
      while (!is_taken(q) && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Pair& pair_with(int rank) { return pairs_[static_cast<std::size_t>(rank)]; }

  const std::string name_;
  Group group_;
  // Each rank has a processor for the thread that waits, in addition to the one for the thread that computes. Otherwise
  // a thread that spins would delay the others.
  const bool both_may_spin_ = base::have_cores(group_.core_share(), 2);
  Pipeline pipeline_;
  bool aborted_ = false;
  std::vector<Pair> pairs_{static_cast<std::size_t>(group_.size())};
};

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  return std::make_unique<SharedMemoryBackend>(options, std::make_shared<Heap>(), nullptr);
}

std::unique_ptr<Backend> make_lane(Backend& first, const GroupOptions& options) {
  return std::make_unique<SharedMemoryBackend>(options, dynamic_cast<SharedMemoryBackend&>(first).group());
}

std::unique_ptr<Backend> make_backend_on(const GroupOptions& options, std::shared_ptr<Medium> medium) {
  auto heap = std::make_shared<Heap>(medium);
  return std::make_unique<SharedMemoryBackend>(options, std::move(heap), std::move(medium));
}

}  // namespace reigen::comm::shared_memory
