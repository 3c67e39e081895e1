#include "comm/nccl/handle.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "device/cuda.h"
#include "reigen/base/error.h"

namespace reigen::comm::nccl {

void check(ncclResult_t code, const char* function, ncclComm_t communicator) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const char* detail = api().nccl_get_last_error(communicator);
  throw BackendError(
      Report{.what = fmt::format("{} failed", function),
             .got = fmt::format("{} ({}){}{}", api().nccl_get_error_string(code), static_cast<int>(code),
                                detail != nullptr && detail[0] != '\0' ? ": " : "", detail != nullptr ? detail : ""),
             .expected = {},
             .fix = "NCCL_DEBUG=INFO makes NCCL say more"});
}

namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr auto kAbortWithin = std::chrono::seconds(2);

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id{};
  for (std::size_t i = 0; i < sizeof(id.internal) && 2 * i + 1 < text.size(); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

}  // namespace

std::string new_identity() {
  ncclUniqueId id{};
  check(api().nccl_get_unique_id(&id), "ncclGetUniqueId");
  std::string text;
  for (const char c : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

void Handle::begin(const std::string& identity, int size, int rank, int most_blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (most_blocks > 0) config.maxCTAs = most_blocks;
  check(api().nccl_comm_init_rank_config(&communicator_, size, from_hex(identity), rank, &config),
        "ncclCommInitRankConfig");
}

bool Handle::settled(const char* what) const {
  ncclResult_t state = ncclSuccess;
  check(api().nccl_comm_get_async_error(communicator_, &state), "ncclCommGetAsyncError", communicator_);
  check(state, what, communicator_);
  return state == ncclSuccess;
}

Handle::~Handle() { abort({this}, Deadline::after(kAbortWithin)); }

bool Handle::abort(const std::vector<Handle*>& handles, const Deadline& deadline) {
  std::vector<Ending> endings;
  for (Handle* handle : handles) {
    if (handle->exists()) endings.push_back({std::exchange(handle->communicator_, nullptr), api().nccl_comm_abort});
  }
  return end_at_once(endings, deadline);
}

// Ends each communicator on a thread of its own. To end a communicator, NCCL frees device memory, and CUDA then blocks
// until the device is idle. On a single thread, the end of the first communicator would wait for kernels that only the
// end of the second communicator stops. Work of other groups on the device may delay the end of all communicators.
bool Handle::end_at_once(const std::vector<Ending>& endings, const Deadline& deadline) {
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t left;
  };
  const auto progress = std::make_shared<Progress>();
  progress->left = endings.size();
  for (const Ending& ending : endings) {
    std::thread([progress, ending] {
      (void)ending.last(ending.communicator);
      std::lock_guard lock(progress->mutex);
      progress->left -= 1;
      progress->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(progress->mutex);
  const auto done = [&] { return progress->left == 0; };
  while (!done() && !deadline.expired()) progress->changed.wait_for(lock, deadline.remaining(kPoll), done);
  return done();
}

bool Handle::is_ending() const {
  ncclResult_t state = ncclSuccess;
  return exists() && api().nccl_comm_get_async_error(communicator_, &state) == ncclSuccess && state == ncclInProgress;
}

void Handle::end(const std::vector<Handle*>& handles, const Deadline& deadline) {
  std::vector<Handle*> unusable;
  for (Handle* handle : handles) {
    ncclResult_t state = ncclSuccess;
    if (!handle->exists()) continue;
    // If NCCL has not finished its last call by now, the communicator was never fully created, or waits for a rank that
    // is gone.
    const bool usable =
        api().nccl_comm_get_async_error(handle->communicator_, &state) == ncclSuccess && state == ncclSuccess;
    const ncclResult_t code = usable ? api().nccl_comm_finalize(handle->communicator_) : ncclInternalError;
    if (code != ncclSuccess && code != ncclInProgress) unusable.push_back(handle);
  }
  (void)abort(unusable, deadline);
  const auto ending = [](const Handle* handle) { return handle->is_ending(); };
  while (std::any_of(handles.begin(), handles.end(), ending) && !deadline.expired()) std::this_thread::sleep_for(kPoll);
  std::vector<Ending> endings;
  for (Handle* handle : handles) {
    if (!handle->exists()) continue;
    const Last last = handle->is_ending() ? api().nccl_comm_abort : api().nccl_comm_destroy;
    endings.push_back({std::exchange(handle->communicator_, nullptr), last});
  }
  (void)end_at_once(endings, Deadline::after(kAbortWithin));
}

}  // namespace reigen::comm::nccl
