#include "comm/nccl/nccl_backend.h"

#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "comm/backends.h"
#include "comm/control/sleeper.h"
#include "comm/nccl/collectives.h"
#include "comm/nccl/device.h"

namespace reigen::comm::nccl {

namespace {

using std::chrono::milliseconds;

constexpr auto kPoll = milliseconds(1);
constexpr auto kEndWithin = std::chrono::seconds(2);

std::string to_hex(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id{};
  for (std::size_t i = 0; i < sizeof(id.internal) && 2 * i + 1 < text.size(); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// Each announcement is a place, and on rank 0 a second line: the group's identity.
void check_places(const std::vector<std::string>& places) {
  for (std::size_t q = 0; q < places.size(); ++q) {
    for (std::size_t p = 0; p < q; ++p) {
      if (places[p] != places[q]) continue;
      throw BackendError(
          Report{.what = fmt::format("ranks {} and {} use the same GPU", p, q),
                 .got = places[p],
                 .expected = "a GPU for each rank",
                 .fix = "call cudaSetDevice(LOCAL_RANK) before the group is made, or start fewer ranks"});
    }
  }
}

class NcclBackend : public Backend {
 public:
  explicit NcclBackend(const GroupOptions& options) : options_(options) {
    group_.rank = options.rank;
    group_.size = options.size;
    group_.device = current_device();
    group_.control = std::make_unique<control::StoreControl>(options);
    join();
  }
  ~NcclBackend() override {
    end();
    if (group_.stream != nullptr) (void)cudaStreamDestroy(group_.stream);
  }

  const std::string& name() const override { return name_; }
  void require_offered(const Call& call) const override { require_plain(call, name_); }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    return std::make_unique<Collective>(group_, call, sequence);
  }
  bool may_spin() const override { return true; }  // for microseconds; the work is the device's
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    sleeper_.sleep(
        ready, [] { return false; }, limit);
  }
  void wake() override { sleeper_.wake(); }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    const auto& collective = static_cast<const Collective&>(operation);
    group_.control->check(collective.call(), collective.sequence(), waited);
  }
  void heartbeat() override {}  // the control's thread gives it while somebody wants to know
  void leave() override {
    group_.control->leave();
    end();
  }
  void publish_abort(const AbortCause& cause) override;
  std::shared_ptr<void> allocate(std::size_t bytes) override { return nccl::allocate(group_.device, bytes); }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& /*members*/) override {
    const OnDevice on(group_.device);
    return std::make_unique<NcclBackend>(options);
  }

 private:
  void join();
  bool wait_until_settled(const Deadline& deadline);
  void end();

  const std::string name_ = "nccl";
  const GroupOptions options_;
  Group group_;
  control::Sleeper sleeper_;
};

void NcclBackend::join() {
  std::string announcement = place_of(group_.device);
  if (group_.rank == 0) {
    ncclUniqueId id{};
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    announcement += "\n" + to_hex(id);
  }
  std::vector<std::string> places = group_.control->join(announcement);
  const std::size_t line = places.front().find('\n');
  ncclUniqueId id = from_hex(places.front().substr(line + 1));
  places.front().resize(line);
  check_places(places);  // all see the same
  std::string failure;
  try {
    check(cudaStreamCreateWithFlags(&group_.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    group_.scratch = nccl::allocate(group_.device, kBarrierBytes + 2 * kHostBytes);
    group_.pinned = allocate_pinned(2 * kHostBytes);
  } catch (const Error& error) {
    failure = error.what();
  }
  group_.control->agree(failure);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(ncclCommInitRankConfig(&group_.communicator, group_.size, id, group_.rank, &config), "ncclCommInitRankConfig");
  if (!wait_until_settled(Deadline::after(options_.join_timeout))) {
    (void)ncclCommAbort(group_.communicator);
    group_.communicator = nullptr;
    throw Timeout(
        Report{.what = fmt::format("rank {} of {}: NCCL did not connect the ranks of group \"{}\" within {} s",
                                   group_.rank, group_.size, options_.name,
                                   std::chrono::duration_cast<std::chrono::seconds>(options_.join_timeout).count()),
               .got = "all ranks are there",
               .expected = {},
               .fix = "NCCL_DEBUG=INFO says which network it tries; NCCL_SOCKET_IFNAME picks another"});
  }
  group_.control->start();
}

bool NcclBackend::wait_until_settled(const Deadline& deadline) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(group_.communicator, &state), "ncclCommGetAsyncError", group_.communicator);
    check(state, "ncclCommInitRankConfig", group_.communicator);
    if (state == ncclSuccess) return true;
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

// In good order if the others do the same soon; they may have died meanwhile.
void NcclBackend::end() {
  if (group_.communicator == nullptr) return;
  const ncclComm_t communicator = std::exchange(group_.communicator, nullptr);
  const Deadline deadline = Deadline::after(kEndWithin);
  ncclResult_t state = ncclCommFinalize(communicator);
  while (state == ncclInProgress && !deadline.expired()) {
    std::this_thread::sleep_for(kPoll);
    if (ncclCommGetAsyncError(communicator, &state) != ncclSuccess) break;
  }
  (void)(state == ncclSuccess ? ncclCommDestroy(communicator) : ncclCommAbort(communicator));
}

// The device stops what it does for the group: afterwards nobody touches the callers' memory.
void NcclBackend::publish_abort(const AbortCause& cause) {
  group_.control->publish_abort(cause);
  if (group_.communicator == nullptr) return;
  (void)ncclCommAbort(std::exchange(group_.communicator, nullptr));
  const Deadline deadline = Deadline::after(kEndWithin);
  while (cudaStreamQuery(group_.stream) == cudaErrorNotReady) {
    if (deadline.expired()) {
      base::log_warning("group \"{}\": the device still works on an operation that was ended", options_.name);
      return;
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupOptions& options) { return std::make_unique<NcclBackend>(options); }

}  // namespace reigen::comm::nccl
