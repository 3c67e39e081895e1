#include "comm/mpi/mpi_backend.h"

#include <unistd.h>

#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "comm/call/checked_operation.h"
#include "comm/control/sleeper.h"
#include "comm/mpi/collectives.h"
#include "comm/mpi/library.h"
#include "comm/mpi/message.h"

namespace reigen::comm::mpi {

namespace {

struct Member {
  int world_rank = 0;
  int world_size = 0;
  pid_t pid = 0;
};

[[noreturn]] void throw_not_started(const std::string& got) {
  throw BackendError(Report{.what = "backend \"mpi\": the ranks were not started as ranks of one MPI job",
                            .got = got,
                            .expected = "one process for each rank, started by MPI's launcher",
                            .fix = "start with: mpirun -n N program"});
}

void check_members(const std::vector<Member>& members) {
  for (std::size_t q = 0; q < members.size(); ++q) {
    for (std::size_t p = 0; p < q; ++p) {
      if (members[p].world_rank != members[q].world_rank) continue;
      throw_not_started(members[p].pid == members[q].pid
                            ? fmt::format("ranks {} and {} are threads of one process ({})", p, q, members[p].pid)
                            : fmt::format("ranks {} and {} are both rank {} of {} in MPI's eyes", p, q,
                                          members[p].world_rank, members[p].world_size));
    }
  }
}

// A number from the group's name, equal on all members. MPI uses it to distinguish groups that are created at the same
// time.
int tag_of(const std::string& name) {
  return static_cast<int>(base::fnv1a(name) & 0x7fffU);  // every MPI library accepts tags up to 32767
}

MPI_Comm make_communicator(const std::vector<Member>& members, const std::string& name) {
  std::vector<int> ranks;
  for (const Member& member : members) ranks.push_back(member.world_rank);
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag_of(name), &made), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return made;
}

class MpiBackend : public Backend {
 public:
  // `parent`: the control of the group from which this group is split, or null.
  MpiBackend(const GroupOptions& options, std::shared_ptr<Arena> arena, const control::StoreControl* parent = nullptr)
      : options_(options) {
    group_.rank = options.rank;
    group_.size = options.size;
    group_.arena = std::move(arena);
    group_.control = std::make_unique<control::StoreControl>(options, control::Watch::kHere, parent);
    join();
  }
  ~MpiBackend() override { leave(); }

  const std::string& name() const override { return name_; }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    if (call.kind == OperationKind::kSend) return std::make_unique<Send>(messages_, pair_with(call.root), call);
    if (call.kind == OperationKind::kRecv) return std::make_unique<Recv>(messages_, pair_with(call.root), call);
    return std::make_unique<Collective>(group_, call, sequence);
  }
  base::CoreShare core_share() const override { return group_.control->core_share(); }
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    sleeper_.sleep(
        ready, [this] { return !group_.moving.empty() || messages_.moving > 0; }, limit);
  }
  void wake() override { sleeper_.wake(); }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    static_cast<const CheckedOperation&>(operation).check_peers(waited);
  }
  void throw_if_ended() override { group_.control->throw_if_ended(); }
  void heartbeat() override {}  // the thread of `control` writes heartbeats to the store while a rank waits
  void leave() override;
  void publish_abort(const AbortCause& cause) override;
  std::shared_ptr<void> allocate(std::size_t bytes) override { return group_.arena->allocate(bytes); }
  std::shared_ptr<void> hold(const void* pointer) override { return group_.arena->hold(pointer); }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& /*members*/) override {
    return std::make_unique<MpiBackend>(options, group_.arena, group_.control.get());
  }

 private:
  void join();
  Pair& pair_with(int rank) { return pairs_[static_cast<std::size_t>(rank)]; }

  const std::string name_ = "mpi";
  const GroupOptions options_;
  Group group_;
  Messages messages_{group_, options_};
  std::vector<Pair> pairs_{static_cast<std::size_t>(options_.size)};
  bool aborted_ = false;
  bool left_ = false;
  control::Sleeper sleeper_;
};

// The ranks meet at the store first, because the store has a deadline and can name a missing rank. MPI's own functions
// have no deadline.
void MpiBackend::join() {
  Library& library = Library::get();
  const auto announcements = group_.control->join(fmt::format("{} {} {}", library.rank(), library.size(), ::getpid()));
  std::vector<Member> members;
  for (const std::string& text : announcements) {
    std::istringstream in(text);
    Member& member = members.emplace_back();
    in >> member.world_rank >> member.world_size >> member.pid;
  }
  check_members(members);  // every rank has the same list, so either all ranks throw or none
  {
    const auto guard = library.guard();
    group_.data = make_communicator(members, options_.name);
    check(MPI_Comm_dup(group_.data, &group_.compare), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(group_.compare, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_dup(group_.data, &messages_.communicator), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(messages_.communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  group_.control->start();
}

// Called when no operation is in flight. This rank has then done its part of each operation, and MPI frees
// communicators without waiting for the other ranks. Only short messages may still be unsent, because their sends
// complete at once. MPI must send them before this rank announces that it leaves: a recv on another rank fails soon
// after the other rank has learned that the sender has left.
void MpiBackend::leave() {
  if (left_) return;
  left_ = true;
  if (!aborted_ && messages_.communicator != MPI_COMM_NULL) messages_.flush();
  if (group_.control) group_.control->leave();
  if (aborted_ || group_.data == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  const auto guard = Library::get().guard();
  MPI_Comm_free(&messages_.communicator);
  MPI_Comm_free(&group_.compare);
  MPI_Comm_free(&group_.data);
}

// MPI cannot cancel operations in flight. So the communicators are never freed, and the arena's memory is never handed
// out again.
void MpiBackend::publish_abort(const AbortCause& cause) {
  aborted_ = true;
  group_.arena->quarantine();
  group_.control->publish_abort(cause);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0 && options.size > 1 && !started_by_mpi()) {
    throw_not_started("a process that mpirun did not start");
  }
  return std::make_unique<MpiBackend>(options, std::make_shared<Arena>());
}

}  // namespace reigen::comm::mpi
