// The stand-in's versions of NCCL's own functions.
#include <nccl.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string>

#include "fakes/cuda/device.h"
#include "fakes/nccl/clique.h"
#include "fakes/nccl/stand_in.h"

namespace stand_in = reigen::testing::stand_in;
using stand_in::Clique;
using stand_in::die;
using stand_in::Kind;
using stand_in::Member;
using stand_in::Task;

// A communicator on one rank.
struct ncclComm {
  enum class State { kJoining, kReady, kBusy, kEnding };

  std::shared_ptr<Member> member;
  std::mutex mutex;
  State state = State::kJoining;
  bool was_asked = false;        // whether the state was asked for since it changed; the first answer is "not ready"
  std::vector<Task> tasks = {};  // enqueued, but not yet on the stream
  cudaStream_t stream = nullptr;
  std::map<int, double> operations = {};
};

namespace {

// The communicators of this process, by folder.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Clique>> cliques;
};

Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

std::atomic<bool> connects{true};
std::atomic<int> fails_on{-1};

// Calls of this thread between ncclGroupStart and ncclGroupEnd.
struct Collected {
  int depth = 0;
  std::vector<std::pair<ncclComm_t, Task>> tasks;
};
thread_local Collected collected;

void launch(ncclComm& communicator) {
  stand_in::queue_of(communicator.stream).push([member = communicator.member, tasks = std::move(communicator.tasks)] {
    run(*member, tasks);
  });
  communicator.tasks.clear();
}

ncclResult_t submit(ncclComm_t communicator, cudaStream_t stream, Task task) {
  std::lock_guard lock(communicator->mutex);
  if (communicator->state != ncclComm::State::kReady) return ncclInvalidArgument;
  if (stand_in::queue_of(stream).device() != communicator->member->device) return ncclInvalidArgument;
  if (task.op >= ncclNumOps) task.factor = communicator->operations.at(task.op);
  if (task.count == 0 && task.kind != Kind::kSend && task.kind != Kind::kRecv) return ncclSuccess;
  communicator->stream = stream;
  const bool is_message = task.kind == Kind::kSend || task.kind == Kind::kRecv;
  if (communicator->member->clique->size == 1 && !is_message) {  // NCCL runs this at once, without its own machinery
    communicator->tasks = {task};
    launch(*communicator);
    return ncclSuccess;
  }
  if (collected.depth == 0) {
    communicator->tasks = {task};
    communicator->state = ncclComm::State::kBusy;
    communicator->was_asked = false;
    return ncclInProgress;
  }
  collected.tasks.emplace_back(communicator, task);
  return ncclSuccess;
}

double to_double(const void* scalar, ncclDataType_t type) {
  std::uint16_t half = 0;
  float single = 0;
  double whole = 0;
  std::memcpy(&half, scalar, sizeof(half));
  if (type == ncclFloat64) std::memcpy(&whole, scalar, sizeof(whole));
  if (type == ncclFloat64) return whole;
  if (type == ncclFloat16) {
    const int exponent = half >> 10 & 31;
    const int fraction = half & 1023;
    const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
  }
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  std::memcpy(&single, type == ncclBfloat16 ? static_cast<const void*>(&bits) : scalar, sizeof(single));
  return single;
}

void give_up(ncclComm_t communicator, bool aborted) {
  Clique& clique = *communicator->member->clique;
  std::lock_guard lock(clique.mutex);
  if (aborted) communicator->member->aborted = true;
  if (communicator->state != ncclComm::State::kEnding) clique.leave(communicator->member->rank);
  clique.changed.notify_all();
}

void free_communicator(ncclComm_t communicator) {
  stand_in::wait_until_idle(communicator->member->device);
  delete communicator;
  stand_in::living().communicators -= 1;
}

}  // namespace

void stand_in::connect(bool works) { connects.store(works); }
void stand_in::fail_to_connect(int device) { fails_on.store(device); }

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string folder = Clique::make_folder();
  std::memset(id, 0, sizeof(*id));
  if (folder.size() >= sizeof(id->internal)) die("the path of a communicator's folder is too long");
  std::memcpy(id->internal, folder.data(), folder.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) die("a communicator that blocks");
  const std::string folder(id.internal, strnlen(id.internal, sizeof(id.internal)));
  std::shared_ptr<Clique> clique;
  {
    std::lock_guard lock(registry().mutex);
    auto& known = registry().cliques[folder];
    clique = known.lock();
    if (!clique) known = clique = std::make_shared<Clique>(folder, size);
  }
  std::lock_guard lock(clique->mutex);
  if (size != clique->size || rank < 0 || rank >= size) return ncclInvalidArgument;
  if (!clique->join(rank, stand_in::device_now())) return ncclInvalidUsage;
  auto member = std::make_shared<Member>(Member{.clique = clique, .rank = rank, .device = stand_in::device_now()});
  *made = new ncclComm{.member = std::move(member), .mutex = {}};
  stand_in::living().communicators += 1;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  using State = ncclComm::State;
  std::lock_guard lock(communicator->mutex);
  Clique& clique = *communicator->member->clique;
  const bool was_asked = std::exchange(communicator->was_asked, true);
  if (communicator->state == State::kJoining && fails_on.load() == communicator->member->device) {
    *state = ncclSystemError;
    return ncclSuccess;
  }
  bool ready = was_asked || communicator->state == State::kReady;
  if (communicator->state == State::kJoining || communicator->state == State::kEnding) {
    std::lock_guard clique_lock(clique.mutex);
    const bool joining = communicator->state == State::kJoining;
    ready = ready && (joining ? clique.joined() : clique.gone()) == clique.size && (!joining || connects.load());
  }
  *state = ready ? ncclSuccess : ncclInProgress;
  if (!ready || communicator->state == State::kEnding) return ncclSuccess;
  if (communicator->state == State::kBusy) launch(*communicator);
  communicator->state = State::kReady;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  std::lock_guard lock(communicator->mutex);
  if (communicator->state != ncclComm::State::kReady) return ncclInvalidArgument;
  give_up(communicator, false);
  communicator->state = ncclComm::State::kEnding;
  communicator->was_asked = false;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator->state != ncclComm::State::kEnding) die("a communicator is destroyed that is not finalized");
  free_communicator(communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  give_up(communicator, true);
  free_communicator(communicator);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : "an error"; }
const char* ncclGetLastError(ncclComm_t) { return "told by the stand-in"; }

ncclResult_t ncclGroupStart() {
  collected.depth += 1;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (collected.depth == 0) return ncclInvalidUsage;
  if (--collected.depth > 0) return ncclSuccess;
  const auto tasks = std::exchange(collected.tasks, {});
  for (const auto& [communicator, task] : tasks) {
    std::lock_guard lock(communicator->mutex);
    communicator->tasks.push_back(task);
    communicator->state = ncclComm::State::kBusy;
    communicator->was_asked = false;
  }
  return tasks.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t where,
                                      ncclComm_t communicator) {
  if (where != ncclScalarHostImmediate) die("a factor on the device");
  std::lock_guard lock(communicator->mutex);
  if (communicator->state != ncclComm::State::kReady) return ncclInvalidArgument;
  int number = ncclNumOps;
  while (communicator->operations.count(number) != 0) number += 1;
  communicator->operations[number] = to_double(scalar, type);
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t communicator) {
  std::lock_guard lock(communicator->mutex);
  return communicator->operations.erase(op) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t to, cudaStream_t stream) {
  return submit(to, stream, {Kind::kAllReduce, input, output, count, type, op});
}

ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t to, cudaStream_t stream) {
  return submit(to, stream, {Kind::kReduce, input, output, count, type, op, 1, root});
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t to, cudaStream_t stream) {
  return submit(to, stream, {Kind::kReduceScatter, input, output, count, type, op});
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclComm_t to,
                           cudaStream_t stream) {
  return submit(to, stream, {Kind::kAllGather, input, output, count, type});
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t to, cudaStream_t stream) {
  return submit(to, stream, {Kind::kBroadcast, input, output, count, type, ncclSum, 1, root});
}

ncclResult_t ncclSend(const void* input, std::size_t count, ncclDataType_t type, int peer, ncclComm_t to,
                      cudaStream_t stream) {
  return submit(to, stream, {Kind::kSend, input, nullptr, count, type, ncclSum, 1, peer});
}

ncclResult_t ncclRecv(void* output, std::size_t count, ncclDataType_t type, int peer, ncclComm_t to,
                      cudaStream_t stream) {
  return submit(to, stream, {Kind::kRecv, nullptr, output, count, type, ncclSum, 1, peer});
}

}  // extern "C"
