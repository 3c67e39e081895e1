#include "comm/nccl/nccl_backend.h"

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "comm/call/block_table.h"
#include "comm/control/sleeper.h"
#include "comm/nccl/collectives.h"
#include "comm/nccl/courier.h"
#include "comm/nccl/message.h"

namespace reigen::comm::nccl {

namespace {

using std::chrono::milliseconds;

constexpr auto kJoinPoll = milliseconds(1);
constexpr auto kEndWithin = std::chrono::seconds(2);

// `places`: the GPU of each rank, as device::place_of() names it.
void check_places(const std::vector<std::string>& places) {
  for (std::size_t q = 0; q < places.size(); ++q) {
    for (std::size_t p = 0; p < q; ++p) {
      if (places[p] != places[q]) continue;
      throw BackendError(Report{.what = fmt::format("ranks {} and {} use the same GPU", p, q),
                                .got = places[p],
                                .expected = "a GPU for each rank",
                                .fix = "NCCL takes one rank a GPU: let ranks of one machine share a GPU by "
                                       "device_backend cuda_ipc, start fewer ranks, or name each rank's GPU "
                                       "(GroupOptions::device)"});
    }
  }
}

class NcclBackend : public Backend {
 public:
  // `parent`: the control of the group from which this group is split, or null.
  NcclBackend(const GroupOptions& options, std::shared_ptr<BlockTable> blocks,
              const control::StoreControl* parent = nullptr)
      : options_(options), blocks_(std::move(blocks)) {
    group_.rank = options.rank;
    group_.size = options.size;
    group_.device = device_;
    group_.control = std::make_unique<control::StoreControl>(options, control::Watch::kHere, parent);
    join();
  }
  ~NcclBackend() override { end(); }

  const std::string& name() const override { return name_; }
  void require_offered(const Call& call) const override { check_reduction(call); }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    if (call.kind == OperationKind::kSend) return std::make_unique<Send>(messages_, call);
    if (call.kind == OperationKind::kRecv) return std::make_unique<Recv>(messages_, call);
    return std::make_unique<Collective>(group_, call, sequence);
  }
  base::CoreShare core_share() const override { return group_.control->core_share(); }
  bool always_spins() const override { return true; }  // a thread spins only briefly, and the device does the work
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    sleeper_.sleep(
        ready, [] { return false; }, limit);
  }
  void wake() override { sleeper_.wake(); }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    static_cast<const CheckedOperation&>(operation).check_peers(waited);
  }
  void throw_if_ended() override { group_.control->throw_if_ended(); }
  void heartbeat() override {}  // the thread of `control` writes heartbeats to the store while a rank waits
  void leave() override;
  void publish_abort(const AbortCause& cause) override;
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return blocks_->add(device::allocate(group_.device, bytes), bytes);
  }
  Device device() const override { return Device::cuda(device_); }
  std::shared_ptr<void> hold(const void* pointer) override { return blocks_->hold(pointer); }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& /*members*/) override {
    return std::make_unique<NcclBackend>(options, blocks_, group_.control.get());
  }

 private:
  void join();
  void connect(const std::string& identity, const std::function<void()>& look);
  std::vector<Handle*> close();
  bool is_idle() const;
  void end();

  const std::string name_ = "nccl";
  const GroupOptions options_;
  const int device_ = device::choose_cuda(options_.device.index, options_.local_rank.value_or(options_.rank));
  const std::shared_ptr<BlockTable> blocks_;  // shared by this group and all groups split from it
  Group group_;
  control::Sleeper sleeper_;
  Courier courier_{options_, device_, [this] { sleeper_.wake(); }};
  Messages messages_{group_, options_, courier_, device::OwnStream(device_)};
  bool aborted_ = false;
};

void NcclBackend::join() {
  const device::OnDevice on(group_.device);  // NCCL uses the thread's current device
  // Each rank announces the place of its GPU. Rank 0 adds a second line with the identity of the NCCL communicator.
  std::string announcement = device::place_of(group_.device);
  if (group_.rank == 0) announcement += "\n" + new_identity();
  std::vector<std::string> places = group_.control->join(announcement);
  const std::size_t line = places.front().find('\n');
  const std::string identity = places.front().substr(line + 1);
  places.front().resize(line);
  check_places(places);  // every rank has the same list, so either all ranks throw or none
  std::string failure;
  try {
    group_.stream = std::make_unique<device::OwnStream>(group_.device);
    group_.barrier = device::allocate(group_.device, 1);
  } catch (const Error& error) {
    failure = error.what();
  }
  group_.control->agree(failure);
  group_.control->together([&](const std::function<void()>& look) { connect(identity, look); });
  group_.control->start();
}

// Waits until NCCL has connected the ranks. `look` throws if another rank has failed or died.
void NcclBackend::connect(const std::string& identity, const std::function<void()>& look) {
  group_.communicator.begin(identity, group_.size, group_.rank);
  const Deadline deadline = Deadline::after(options_.join_timeout);
  while (!group_.communicator.settled("ncclCommInitRankConfig")) {
    if (deadline.expired()) {
      throw Timeout(
          Report{.what = fmt::format("rank {} of {}: NCCL did not connect the ranks of group \"{}\" within {} s",
                                     group_.rank, group_.size, options_.name,
                                     std::chrono::duration_cast<std::chrono::seconds>(options_.join_timeout).count()),
                 .got = "all ranks are there",
                 .expected = {},
                 .fix = "NCCL_DEBUG=INFO says which network it tries; NCCL_SOCKET_IFNAME picks another"});
    }
    look();
    std::this_thread::sleep_for(kJoinPoll);
  }
}

// Stops the thread that sends and receives messages (courier.h), so that it makes no more NCCL calls. Returns the
// communicators of the messages and of the collectives, which the caller must end.
std::vector<Handle*> NcclBackend::close() {
  std::vector<Handle*> handles = courier_.close();
  handles.push_back(&group_.alone);
  handles.push_back(&group_.communicator);
  return handles;
}

// Ends the communicators. The deadline is needed because other ranks may have died, or may never receive a message that
// was sent to them.
void NcclBackend::end() { Handle::end(close(), Deadline::after(kEndWithin)); }

// The send of a short message (message.h) may complete before the receiver has the data. flush() waits until the
// receivers have the data of all these messages. Only then does this rank announce that it leaves, because a recv fails
// soon after the receiver has learned that the sender has left.
void NcclBackend::leave() {
  if (!aborted_) courier_.flush();
  group_.control->leave();
  end();
}

bool NcclBackend::is_idle() const {
  return group_.stream->is_idle() && messages_.copies.is_idle() && courier_.is_idle();
}

// Aborts the communicators, so that the device stops its work for the group. Then no kernel accesses the callers'
// memory any more.
void NcclBackend::publish_abort(const AbortCause& cause) {
  aborted_ = true;
  group_.control->publish_abort(cause);
  const Deadline deadline = Deadline::after(kEndWithin);
  (void)Handle::abort(close(), deadline);
  while (!is_idle()) {
    if (deadline.expired()) {
      base::log_warning("group \"{}\": the device still works on an operation that was ended", options_.name);
      return;
    }
    std::this_thread::sleep_for(kJoinPoll);
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  return std::make_unique<NcclBackend>(options, std::make_shared<BlockTable>());
}

}  // namespace reigen::comm::nccl
