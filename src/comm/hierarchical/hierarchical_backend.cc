#include "comm/hierarchical/hierarchical_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "comm/backends.h"
#include "comm/forming/forming.h"
#include "comm/hierarchical/group.h"
#include "comm/hierarchical/machines.h"
#include "comm/hierarchical/operation.h"
#include "comm/shared_memory/shared_memory_backend.h"

namespace reigen::comm::hierarchical {

namespace {

constexpr auto kJoinSlice = std::chrono::seconds(1);         // a waiting rank checks this often which ranks are missing
constexpr auto kNever = std::chrono::hours(24 * 365 * 100);  // a timeout that never passes
// If operations of this rank wait in several parts (smaller groups, group.h), its thread sleeps in one part, and events
// of the other parts do not wake it. So it sleeps only for a short time: this long at first.
constexpr auto kGlance = std::chrono::microseconds(200);
// While nothing is ready, each sleep is twice as long as the sleep before, up to this time.
constexpr auto kLongGlance = std::chrono::microseconds(2000);

GroupOptions options_of(const GroupOptions& whole, const std::string& name, const std::vector<int>& ranks) {
  GroupOptions options = whole;
  options.name = whole.name + "." + name;
  options.size = static_cast<int>(ranks.size());
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), whole.rank) - ranks.begin());
  // The parts report no long waits and have no timeout. The control channel of the whole group reports long waits and
  // has the timeout, because it observes all ranks.
  options.report_after = options.timeout = kNever;
  return options;
}

class HierarchicalBackend : public Backend {
 public:
  // `inside` and `everybody` make the backends of the parts with these names (group.h) from their options.
  using Make = std::function<std::unique_ptr<Backend>(const GroupOptions&)>;
  HierarchicalBackend(const GroupOptions& options, const Layout& layout, const Make& inside, const Make& everybody,
                      const Group* parent = nullptr)
      : group_(options, layout, parent) {
    // Through `forming`, a rank that waits for one part (smaller group) learns what went wrong in a different part.
    Forming forming(group_.options, "/levels", kJoinSlice);
    try {
      GroupOptions watched = group_.options;
      watched.while_forming = [&] {
        told_ = true;  // errors thrown here name ranks by their numbers in the whole group
        forming.check({});
        told_ = false;
      };
      fill(group_.inside[0], watched, fmt::format("machine{}", layout.machine), layout.neighbours(), inside);
      for (std::size_t lane = 1; lane < kLanes; ++lane) {
        fill(group_.inside[lane], watched, fmt::format("machine{}.lane{}", layout.machine, lane), layout.neighbours(),
             [&](const GroupOptions& part) { return shared_memory::make_lane(*group_.inside[0].backend, part); });
      }
      std::vector<int> all(layout.order.size());
      for (std::size_t q = 0; q < all.size(); ++q) all[q] = static_cast<int>(q);
      fill(group_.everybody, watched, "network", all, everybody);
      if (layout.place < layout.carriers) {
        std::vector<int> alike;
        for (const auto& members : layout.machines) alike.push_back(members[static_cast<std::size_t>(layout.place)]);
        // While the part `between` (one rank of each machine) forms, the part `everybody` finds out which ranks die.
        // Its errors name ranks by their numbers in the whole group.
        const auto heard = watched.while_forming;
        watched.while_forming = [this, heard, alike] {
          heard();
          told_ = true;
          group_.everybody.backend->look_for(alike);
          told_ = false;
        };
        fill(group_.between, watched, fmt::format("place{}", layout.place), alike,
             [&](const GroupOptions& part) { return group_.everybody.backend->make_child(part, alike); });
      }
      group_.control.join("", watched.while_forming);
      forming.complete();
    } catch (const Error& error) {
      forming.end_for_all(error);
    }
    group_.control.start();
  }

  const std::string& name() const override { return name_; }
  std::string last_algorithm() const override { return group_.last_algorithm(); }
  void require_offered(const Call& call) const override {
    const bool by_network = even_kind(call.kind) == OperationKind::kGather ||
                            even_kind(call.kind) == OperationKind::kScatter ||
                            even_kind(call.kind) == OperationKind::kAllToAll || is_between_two(call.kind);
    if (by_network) group_.everybody.backend->require_offered(call);
  }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    if (is_between_two(call.kind)) return std::make_unique<Message>(group_, call);
    return std::make_unique<Collective>(group_, call, sequence);
  }
  base::CoreShare core_share() const override { return group_.everybody.backend->core_share(); }
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    // Sleep in the part (smaller group) in which the first collective in flight waits, because the later collectives
    // complete after it.
    const Part* first = group_.waits_in[lane_of(group_.in_flight.completed())];
    bool several = false;
    for (const Part* part : group_.parts()) {
      const bool has_collective =
          std::find(std::begin(group_.waits_in), std::end(group_.waits_in), part) != std::end(group_.waits_in);
      if (part == first || (!has_collective && part->messages.load() == 0)) continue;
      several = first != nullptr;
      if (first == nullptr) first = part;
    }
    const Part& part = first == nullptr ? group_.inside[0] : *first;
    if (!several) return part.backend->sleep(ready, limit);
    const auto looks = [&] {
      const bool is_ready = ready();
      glance_ = is_ready ? kGlance : std::min(2 * glance_, kLongGlance);
      return is_ready;
    };
    part.backend->sleep(looks, std::min<std::chrono::nanoseconds>(limit, glance_));
  }
  void wake() override {
    for (const Part* part : group_.parts()) part->backend->wake();
  }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    static_cast<const CheckedOperation&>(operation).check_peers(waited);
  }
  void throw_if_ended() override {
    group_.throw_if_ended([this] { return fmt::format("group \"{}\"", group_.options.name); });
  }
  void heartbeat() override {
    for (const Part* part : group_.parts()) part->backend->heartbeat();
  }
  void leave() override {
    group_.control.leave();
    for (const Part* part : group_.parts()) part->backend->leave();
  }
  void publish_abort(const AbortCause& cause) override { group_.publish_abort(cause); }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return group_.inside[0].backend->allocate(bytes); }
  std::shared_ptr<void> hold(const void* pointer) override { return group_.inside[0].backend->hold(pointer); }
  std::optional<std::uint64_t> network_bytes() const override {
    std::uint64_t sum = 0;
    for (const Part* part : group_.parts()) {
      if (!part->backend) continue;
      const std::optional<std::uint64_t> bytes = part->backend->network_bytes();
      if (!bytes) return std::nullopt;
      sum += *bytes;
    }
    return sum;
  }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& members) override;

 private:
  void fill(Part& part, const GroupOptions& whole, const std::string& name, const std::vector<int>& ranks,
            const Make& make) {
    const GroupOptions options = options_of(whole, name, ranks);
    part.name = options.name;
    part.ranks = ranks;
    try {
      part.backend = make(options);
    } catch (const PeerLost& error) {
      if (told_ || error.rank() < 0) throw;
      throw PeerLost(ranks[static_cast<std::size_t>(error.rank())],
                     fmt::format("{}\n  {}", error.what(), legend(part, group_.options.name)));
    }
  }

  const std::string name_ = "hierarchical";
  std::chrono::microseconds glance_ = kGlance;
  Group group_;
  bool told_ = false;  // errors thrown now name ranks by their numbers in the whole group
};

// The machines of the members are known from this group, so no rank calls find_machines() again. If all members are on
// one machine, the child is a group over shared memory. If no two members are on the same machine, it is a group over
// the network.
std::unique_ptr<Backend> HierarchicalBackend::make_child(const GroupOptions& options, const std::vector<int>& members) {
  const Layout& whole = group_.layout;
  Machines machines(whole.machines.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    machines[static_cast<std::size_t>(whole.machine_of(members[i]))].push_back(static_cast<int>(i));
  }
  std::erase_if(machines, [](const std::vector<int>& machine) { return machine.empty(); });
  std::sort(machines.begin(), machines.end());
  const Layout layout(machines, options.rank);
  std::vector<int> places;  // rank numbers, in the part `inside`, of the members on this machine
  for (const int i : layout.neighbours()) places.push_back(whole.place_of(members[static_cast<std::size_t>(i)]));
  if (layout.machine_count() == 1) return group_.inside[0].backend->make_child(options, places);
  if (machines.size() == members.size()) return group_.everybody.backend->make_child(options, members);
  return std::make_unique<HierarchicalBackend>(
      options, layout, [&](const GroupOptions& part) { return group_.inside[0].backend->make_child(part, places); },
      [&](const GroupOptions& part) { return group_.everybody.backend->make_child(part, members); }, &group_);
}

std::unique_ptr<Backend> make(const GroupOptions& options, Machines machines) {
  return std::make_unique<HierarchicalBackend>(options, Layout(std::move(machines), options.rank),
                                               shared_memory::make_backend, find_backend(options.network).make);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupOptions& options) { return make(options, find_machines(options)); }

std::unique_ptr<Backend> make_automatic(const GroupOptions& options) {
  Machines machines = find_machines(options);
  if (machines.size() == 1) return shared_memory::make_backend(options);
  if (machines.size() == static_cast<std::size_t>(options.size)) return find_backend(options.network).make(options);
  return make(options, std::move(machines));
}

}  // namespace reigen::comm::hierarchical
