#include "fakes/cuda/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fakes/cuda/capture.h"
#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

namespace {

constexpr int kPinned = -1;
thread_local int current_device = 0;
std::atomic<int> capability{90};
std::atomic<int> compute_mode{0};
std::atomic<void (*)(int device)> empty_cache{nullptr};

struct Block {
  std::size_t bytes;
  int device;                    // a device's number, or kPinned
  std::byte* inside;             // the address for kernels: the block's own begin, unless the block is hidden
  std::shared_ptr<void> memory;  // owns both mappings
  int file = -1;                 // a descriptor of the memory, by which other processes map it; -1: there is none
};

std::array<std::size_t, kDevices> full_memory() {
  std::array<std::size_t, kDevices> bytes{};
  bytes.fill(kMemory);
  return bytes;
}

// The machine is never destroyed, because threads of streams may outlive main().
struct Machine {
  std::mutex mutex;
  bool hides_memory = false;
  bool shares_memory = false;
  std::array<std::size_t, kDevices> memory = full_memory();  // of each device, in bytes
  std::map<const std::byte*, Block> blocks;
  std::array<std::shared_ptr<Queue>, kDevices> defaults;
  std::map<CUstream_st*, std::shared_ptr<Queue>> streams;
  std::set<std::pair<int, int>> reached;  // {device, the device whose memory it may use}
};

Machine& machine() {
  static auto* const all = new Machine;
  return *all;
}

// The block that contains `data`, and the number of its bytes from there on. The caller holds the machine's lock.
std::pair<const Block*, std::size_t> block_at(const void* data) {
  const auto* at = static_cast<const std::byte*>(data);
  const auto after = machine().blocks.upper_bound(at);
  if (after == machine().blocks.begin()) return {nullptr, 0};
  const auto& [begin, block] = *std::prev(after);
  if (at >= begin + block.bytes) return {nullptr, 0};
  return {&block, static_cast<std::size_t>(begin + block.bytes - at)};
}

// The caller holds the machine's lock.
std::size_t used_memory(int device) {
  std::size_t bytes = 0;
  for (const auto& [begin, block] : machine().blocks) bytes += block.device == device ? block.bytes : 0;
  return bytes;
}

// Maps memory of a file, at `begin` for the program and for kernels. If device memory is hidden, these are two
// addresses, and any access at `begin` fails. The block owns `file`.
Block map(std::byte*& begin, std::size_t bytes, int file, int device) {
  const std::size_t size = (bytes + 255) / 256 * 256;
  const auto map_with = [&](int access) {
    void* const at = ::mmap(nullptr, size, access, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) die("no memory");
    return static_cast<std::byte*>(at);
  };
  std::byte* const inside = map_with(PROT_READ | PROT_WRITE);
  begin = machine().hides_memory ? map_with(PROT_NONE) : inside;
  const auto unmap = [outside = begin, size, file](std::byte* pointer) {
    ::munmap(pointer, size);
    if (outside != pointer) ::munmap(outside, size);
    ::close(file);
  };
  return {bytes, device, inside, {inside, unmap}, file};
}

Block make_private(std::byte*& begin, std::size_t bytes, int device) {
  begin = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (begin == nullptr) die("no memory");
  return {bytes, device, begin, {begin, [](std::byte* pointer) { std::free(pointer); }}};
}

// Memory of a file costs more time, so only blocks that need it lie there. Returns nothing if the process has as many
// files as it may have.
std::optional<Block> make_on_device(std::byte*& begin, std::size_t bytes, int device) {
  if (!machine().hides_memory && !machine().shares_memory) return make_private(begin, bytes, device);
  const int file = ::memfd_create("stand-in", MFD_CLOEXEC);
  if (file < 0 && errno == EMFILE) return std::nullopt;
  if (file < 0 || ::ftruncate(file, static_cast<off_t>((bytes + 255) / 256 * 256)) != 0) die("no memory");
  return map(begin, bytes, file, device);
}

void count_allocation(int device) {
  if (device == kPinned)
    counts(current_device).pinned += 1;
  else
    counts(device).allocations += 1;
}

// The caller holds the machine's lock.
void add(std::byte* begin, Block block) {
  machine().blocks[begin] = std::move(block);
  living().blocks += 1;
}

cudaError_t make_block(void** data, std::size_t bytes, int device) {
  std::lock_guard lock(machine().mutex);
  std::byte* begin = nullptr;
  std::optional<Block> block =
      device == kPinned ? make_private(begin, bytes, device) : make_on_device(begin, bytes, device);
  if (!block) return cudaErrorMemoryAllocation;
  // So nobody takes new memory for zeros. Of the large blocks, heaps of groups, the beginning is enough: to write all
  // of them takes long.
  std::memset(block->inside, 0xa5, std::min(bytes, std::size_t{1} << 20));
  add(begin, std::move(*block));
  count_allocation(device);
  *data = begin;
  return cudaSuccess;
}

cudaError_t free_block(void* data) {
  if (data == nullptr) return cudaSuccess;
  int device = kPinned;
  {
    std::lock_guard lock(machine().mutex);
    const auto found = machine().blocks.find(static_cast<std::byte*>(data));
    if (found == machine().blocks.end()) die("memory is freed that is none");
    count_allocation(found->second.device);
    device = found->second.device == kPinned ? current_device : found->second.device;
  }
  wait_until_idle(device);
  std::lock_guard lock(machine().mutex);
  machine().blocks.erase(static_cast<std::byte*>(data));
  living().blocks -= 1;
  return cudaSuccess;
}

std::shared_ptr<Queue> find_queue(cudaStream_t stream) {
  std::lock_guard lock(machine().mutex);
  if (stream == nullptr || stream == cudaStreamLegacy) {
    auto& queue = machine().defaults[static_cast<std::size_t>(current_device)];
    if (!queue) queue = std::make_shared<Queue>(current_device);
    return queue;
  }
  const auto found = machine().streams.find(stream);
  if (found == machine().streams.end()) die("a stream is used that is none");
  return found->second;
}

}  // namespace

void die(const std::string& what) {
  std::fprintf(stderr, "stand-in for CUDA: %s\n", what.c_str());
  std::abort();
}

Living& living() {
  static auto* const all = new Living;
  return *all;
}

Counts& counts(int device) {
  static auto* const all = new std::array<Counts, kDevices>;
  return all->at(static_cast<std::size_t>(device));
}

std::string what_lives() {
  const Living& all = living();
  return fmt::format("communicators {}, streams {}, events {}, blocks {}", all.communicators.load(), all.streams.load(),
                     all.events.load(), all.blocks.load());
}

void use_device_of(int rank) { current_device = rank % kDevices; }
int device_now() { return current_device; }
void enqueue(cudaStream_t stream, std::function<void()> kernel) { find_queue(stream)->push(std::move(kernel)); }
Queue& queue_of(cudaStream_t stream) { return *find_queue(stream); }

void wait_until_idle(int device) {
  std::vector<std::shared_ptr<Queue>> queues;
  {
    std::lock_guard lock(machine().mutex);
    for (const auto& [stream, queue] : machine().streams) {
      if (queue->device() == device) queues.push_back(queue);
    }
    if (const auto& queue = machine().defaults[static_cast<std::size_t>(device)]) queues.push_back(queue);
  }
  for (const auto& queue : queues) queue->wait_until_idle();
}

void hide_memory() {
  std::lock_guard lock(machine().mutex);
  machine().hides_memory = true;
}

void set_capability(int ten_times) { capability.store(ten_times); }
void set_compute_mode(int mode) { compute_mode.store(mode); }
void set_cache(void (*empty)(int device)) { empty_cache.store(empty); }

void leave_memory(std::size_t bytes) {
  if (auto* const empty = empty_cache.load()) {
    for (int device = 0; device < kDevices; ++device) empty(device);
  }
  std::lock_guard lock(machine().mutex);
  for (int device = 0; device < kDevices; ++device) {
    machine().memory.at(static_cast<std::size_t>(device)) = used_memory(device) + bytes;
  }
}

void share_memory() {
  std::lock_guard lock(machine().mutex);
  machine().shares_memory = true;
}

SavedMemory save_memory(int device) {
  std::lock_guard lock(machine().mutex);
  SavedMemory saved;
  for (const auto& [begin, block] : machine().blocks) {
    if (block.device == device)
      saved.emplace_back(begin, std::vector<std::byte>(block.inside, block.inside + block.bytes));
  }
  return saved;
}

void put_back(int device, const SavedMemory& saved) {
  wait_until_idle(device);
  std::lock_guard lock(machine().mutex);
  for (const auto& [begin, block] : machine().blocks) {
    if (block.device == device) std::memset(block.inside, 0xa5, block.bytes);
  }
  for (const auto& [begin, bytes] : saved) {
    const auto found = machine().blocks.find(begin);
    if (found != machine().blocks.end()) std::memcpy(found->second.inside, bytes.data(), bytes.size());
  }
}

// The writes of words by streams of this process that have not run yet: {address, {the stream, the task's number}}.
// A write's task removes its entry under the mutex, and a stream ends only after its tasks. So the stream of an entry
// lives while the mutex is held.
struct Writers {
  std::mutex mutex;
  std::multimap<unsigned long long, std::pair<Queue*, std::uint64_t>> words;
};
Writers& writers() {
  static auto* const all = new Writers;
  return *all;
}
void need_writers(unsigned long long address) {
  std::lock_guard lock(writers().mutex);
  const auto [begin, end] = writers().words.equal_range(address);
  for (auto each = begin; each != end; ++each) each->second.first->need(each->second.second);
}

std::atomic<std::uint32_t>& word_at(unsigned long long address) {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(static_cast<std::uintptr_t>(address));
}

std::byte* reach(const void* data) {
  std::lock_guard lock(machine().mutex);
  const auto [block, left] = block_at(data);
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return block == nullptr ? at : block->inside + block->bytes - left;
}

void require_memory(const void* data, std::size_t bytes, int device, const char* what) {
  std::lock_guard lock(machine().mutex);
  const auto [block, left] = block_at(data);
  const bool reaches =
      block != nullptr && (block->device == device || (block->device == kPinned && device != kPinned) ||
                           machine().reached.count({device, block->device}) > 0);
  if (!reaches || left < bytes) {
    die(fmt::format("{}: {} bytes at {} are not memory of {}", what, bytes, data,
                    device == kPinned ? "the host, pinned" : fmt::format("device {}", device)));
  }
}

}  // namespace reigen::testing::stand_in

using reigen::testing::stand_in::die;
using reigen::testing::stand_in::living;
using reigen::testing::stand_in::Queue;
using reigen::testing::stand_in::queue_of;
namespace stand_in = reigen::testing::stand_in;

struct CUstream_st {};

namespace reigen::testing::stand_in {
namespace {

// The content of a cudaIpcMemHandle_t.
struct Handle {
  int process;
  int file;
  std::size_t bytes;
  void* data;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

}  // namespace
}  // namespace reigen::testing::stand_in

extern "C" {

const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }

cudaError_t cudaGetDeviceCount(int* count) {
  const char* const told = std::getenv("STAND_IN_DEVICES");
  *count = told != nullptr ? std::atoi(told) : stand_in::kDevices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = stand_in::device_now();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= stand_in::kDevices) return cudaErrorInvalidDevice;
  stand_in::use_device_of(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const std::string name = fmt::format("0000:{:02x}:00.0", device);
  std::memcpy(text, name.c_str(), std::min(name.size() + 1, static_cast<std::size_t>(length)));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  std::lock_guard lock(stand_in::machine().mutex);
  const int device = stand_in::device_now();
  *total = stand_in::machine().memory.at(static_cast<std::size_t>(device));
  *free = *total - std::min(*total, stand_in::used_memory(device));
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (stand_in::is_refused("cudaMalloc")) return cudaErrorStreamCaptureUnsupported;
  if (stand_in::compute_mode.load() != cudaComputeModeDefault) return cudaErrorDevicesUnavailable;
  {
    std::lock_guard lock(stand_in::machine().mutex);
    const int device = stand_in::device_now();
    const std::size_t all = stand_in::machine().memory.at(static_cast<std::size_t>(device));
    // To add up all blocks takes long, and without leave_memory() only a large block can be too much.
    const bool is_limited = all != stand_in::kMemory || bytes > all / 8;
    if (is_limited && stand_in::used_memory(device) + bytes > all) return cudaErrorMemoryAllocation;
  }
  return stand_in::make_block(data, bytes, stand_in::device_now());
}
cudaError_t cudaFree(void* data) {
  if (stand_in::is_refused("cudaFree")) return cudaErrorStreamCaptureUnsupported;
  return stand_in::free_block(data);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  if (stand_in::is_refused("cudaMallocHost")) return cudaErrorStreamCaptureUnsupported;
  return stand_in::make_block(data, bytes, stand_in::kPinned);
}
cudaError_t cudaFreeHost(void* data) { return stand_in::free_block(data); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  std::lock_guard lock(stand_in::machine().mutex);
  const auto [block, left] = stand_in::block_at(data);
  *attributes = {};
  attributes->type = block == nullptr                     ? cudaMemoryTypeUnregistered
                     : block->device == stand_in::kPinned ? cudaMemoryTypeHost
                                                          : cudaMemoryTypeDevice;
  if (block != nullptr) attributes->device = block->device;
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  stand_in::require_memory(data, bytes, queue_of(stream).device(), "cudaMemset");
  queue_of(stream).push([=] { std::memset(stand_in::reach(data), value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  const int to_device = kind == cudaMemcpyDeviceToHost ? stand_in::kPinned : queue.device();
  const int from_device = kind == cudaMemcpyHostToDevice ? stand_in::kPinned : queue.device();
  const auto require = [=] {
    stand_in::require_memory(to, bytes, to_device, "cudaMemcpyAsync to");
    stand_in::require_memory(from, bytes, from_device, "cudaMemcpyAsync from");
  };
  require();
  queue.push([=] {
    require();  // the memory must still be valid
    std::memcpy(stand_in::reach(to), stand_in::reach(from), bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (flags != cudaStreamNonBlocking) die("a stream that waits for the default stream");
  *stream = new CUstream_st;
  std::lock_guard lock(stand_in::machine().mutex);
  stand_in::machine().streams[*stream] = std::make_shared<Queue>(stand_in::device_now());
  living().streams += 1;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::shared_ptr<Queue> queue = stand_in::find_queue(stream);
  {
    std::lock_guard lock(stand_in::machine().mutex);
    stand_in::machine().streams.erase(stream);
  }
  queue.reset();
  delete stream;
  living().streams -= 1;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stand_in::is_refused("cudaStreamQuery", stream)) return cudaErrorStreamCaptureUnsupported;
  if (queue_of(stream).is_idle()) return cudaSuccess;
  queue_of(stream).need_all();
  return cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stand_in::is_refused("cudaStreamSynchronize", stream)) return cudaErrorStreamCaptureUnsupported;
  stand_in::counts(stand_in::device_now()).waits += 1;
  queue_of(stream).wait_until_idle();
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = stand_in::capability.load() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = stand_in::capability.load() % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeMode: *value = stand_in::compute_mode.load(); break;
    default: *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13010;
  return cudaSuccess;
}

// Functions of the driver, under the names that the driver gives them.
int cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<std::size_t>(length), "Stand-in");
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = stand_in::kMemory;
  return 0;
}
int cuStreamWriteValue32_v2(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned int) {
  stand_in::Queue& queue = queue_of(stream);
  std::lock_guard lock(stand_in::writers().mutex);
  const std::uint64_t number = queue.push(
      [=, &queue] {
        stand_in::word_at(address).store(value);
        std::lock_guard done(stand_in::writers().mutex);
        auto& [mutex, words] = stand_in::writers();
        const auto [begin, end] = words.equal_range(address);
        for (auto each = begin; each != end; ++each) {
          if (each->second.first != &queue) continue;
          words.erase(each);
          return;
        }
      },
      /*writes=*/true);
  stand_in::writers().words.emplace(address, std::pair(&queue, number));
  return 0;
}
int cuStreamWaitValue32_v2(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned int) {
  queue_of(stream).push([=] {
    // Streams are threads here. If all of them yielded until the end, they would take the cores from the threads that
    // compute.
    for (int looks = 0; static_cast<std::int32_t>(stand_in::word_at(address).load() - value) < 0; ++looks) {
      stand_in::need_writers(address);
      if (looks < 20)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  return 0;
}

// Ranks that are threads use each other's addresses. Processes map the memory by its descriptor.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  std::lock_guard lock(stand_in::machine().mutex);
  const auto [block, left] = stand_in::block_at(data);
  if (block == nullptr) return cudaErrorInvalidValue;
  const stand_in::Handle told{::getpid(), block->file, block->bytes, data};
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle->reserved, &told, sizeof(told));
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned int) {
  stand_in::Handle told{};
  std::memcpy(&told, handle.reserved, sizeof(told));
  *data = told.data;
  if (told.process == ::getpid()) return cudaSuccess;
  if (told.file < 0) stand_in::die("another process's memory is opened without share_memory()");
  const int file = ::open(fmt::format("/proc/{}/fd/{}", told.process, told.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return cudaErrorMapBufferObjectFailed;
  std::lock_guard lock(stand_in::machine().mutex);
  std::byte* begin = nullptr;
  stand_in::Block block = stand_in::map(begin, told.bytes, file, stand_in::device_now());
  stand_in::add(begin, std::move(block));
  *data = begin;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* data) {
  stand_in::wait_until_idle(stand_in::device_now());
  std::lock_guard lock(stand_in::machine().mutex);
  stand_in::machine().blocks.erase(static_cast<std::byte*>(data));
  living().blocks -= 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
  std::lock_guard lock(stand_in::machine().mutex);
  const bool is_new = stand_in::machine().reached.insert({stand_in::device_now(), peer}).second;
  return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

}  // extern "C"
