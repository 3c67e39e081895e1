// LibTorch's device "cuda" over the stand-in for CUDA (fakes/cuda/), for tests on machines without a GPU. A program
// that links these objects has the stand-in's devices for LibTorch: tensors of them lie in its memory, which the
// host cannot access, and operators are computed by the CPU's, with the same bits.
//
// An operator first waits until its stream has done all earlier work, and then computes on the calling thread. So it
// sees the result of a collective only if its stream waits for that collective. Its own result is written by a task of
// the stream, so a collective sees it only if the collective begins after the stream.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fakes/cuda/capture.h"
#include "fakes/cuda/device.h"
#include "fakes/cuda/stand_in.h"
#include "fakes/cuda/torch/recording.h"

namespace {

namespace stand_in = reigen::testing::stand_in;
namespace played = reigen::testing::played;

// The current stream of each device, as a stream's number of LibTorch: the address of the CUDA stream, 0: the default.
thread_local std::array<c10::StreamId, stand_in::kDevices> current_streams = {};

c10::DeviceIndex visible_devices() {
  int count = 0;
  cudaGetDeviceCount(&count);
  return static_cast<c10::DeviceIndex>(count);
}

cudaStream_t handle_of(c10::StreamId id) { return reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(id)); }

// Like LibTorch's allocator, it never waits for the device. A block belongs to the stream that was current when it was
// allocated. A freed block is handed out again at once, for work on this stream. Its bytes are overwritten in the order
// of the stream, so other work that still uses the block sees other numbers.
class Allocator final : public c10::DeviceAllocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    const int device = stand_in::device_now();
    const at::Device on(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, &drop, on};
    const std::size_t size = (bytes + kRounding - 1) / kRounding * kRounding;
    const Key key{device, current_streams[static_cast<std::size_t>(device)], size, played::memory_pool()};
    void* data = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find(key);
      if (found != free_.end()) {
        data = found->second;
        free_.erase(found);
      }
    }
    const stand_in::NotCaptured relaxed;  // LibTorch's allocator may allocate in a capture
    bool is_new = false;
    if (data == nullptr) {
      if (cudaMalloc(&data, size) != cudaSuccess) empty(device);
      TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr || cudaMalloc(&data, size) == cudaSuccess,
                       "CUDA out of memory. Tried to allocate ", size, " bytes on cuda:", device);
      is_new = true;
    }
    const std::lock_guard lock(mutex_);
    if (is_new) stats(device).reserved_bytes[kAll].increase(size);
    stats(device).allocated_bytes[kAll].increase(size);
    return {data, new Block{key, data}, &drop, on};
  }
  // Frees the blocks that nobody uses. The memory of a graph is used by its replays.
  void empty(int device) {
    free_if([device](const Key& key) { return std::get<0>(key) == device && std::get<3>(key) == 0; });
  }
  void empty_pool(int pool) {
    free_if([pool](const Key& key) { return std::get<3>(key) == pool; });
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override { stand_in::die("an allocator copies"); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (int device = 0; device < stand_in::kDevices; ++device) empty(device);
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override { stand_in::die("a block is kept for a stream"); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    return stats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    stats(device).allocated_bytes[kAll].reset_peak();
    stats(device).reserved_bytes[kAll].reset_peak();
  }

 private:
  static constexpr std::size_t kRounding = 512;
  static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  using Key = std::tuple<int, c10::StreamId, std::size_t, int>;  // device, stream, bytes, the graph (0: none)
  struct Block {
    Key key;
    void* data;
  };
  static void drop(void* context);
  template <class Is>
  void free_if(const Is& is_wanted) {
    std::vector<void*> unused;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(free_, [&](const auto& block) {
        if (!is_wanted(block.first)) return false;
        unused.push_back(block.second);
        stats(std::get<0>(block.first)).reserved_bytes[kAll].decrease(std::get<2>(block.first));
        return true;
      });
    }
    // Without the lock: cudaFree waits for the streams, whose tasks may drop tensors.
    for (void* const data : unused) cudaFree(data);
  }
  void take_back(const Block& block) {
    const auto& [device, stream, size, pool] = block.key;
    const c10::DeviceGuard on(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    const auto overwrite = [data = block.data, size = size] { std::memset(stand_in::reach(data), 0xa5, size); };
    // Without work on the stream this thread overwrites, which takes less time.
    if (!played::is_recorded() && stand_in::queue_of(handle_of(stream)).is_idle())
      overwrite();
    else
      stand_in::enqueue(handle_of(stream), overwrite);
    const std::lock_guard lock(mutex_);
    stats(device).allocated_bytes[kAll].decrease(size);
    free_.emplace(block.key, block.data);
  }
  c10::CachingDeviceAllocator::DeviceStats& stats(int device) { return stats_.at(static_cast<std::size_t>(device)); }

  std::mutex mutex_;  // guards what follows
  std::multimap<Key, void*> free_;
  std::array<c10::CachingDeviceAllocator::DeviceStats, stand_in::kDevices> stats_ = {};
};
// Never destroyed, because tensors may outlive main().
Allocator& allocator = *new Allocator;

void Allocator::drop(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (block) allocator.take_back(*block);
}

// Pinned memory of the host. Like LibTorch's allocator, it never waits for the device, and hands a freed block out
// again when the copies that use it are done.
class PinnedAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    const at::Device on(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &drop, on};
    const std::size_t size = (bytes + kRounding - 1) / kRounding * kRounding;
    const std::lock_guard lock(mutex_);
    for (auto& [data, block] : blocks_) {
      if (!block.is_free || block.bytes != size || !are_done(block)) continue;
      block.is_free = false;
      return {data, data, &drop, on};
    }
    void* data = nullptr;
    cudaMallocHost(&data, size);
    blocks_[data] = {.bytes = size, .is_free = false, .uses = {}};
    return {data, data, &drop, on};
  }
  at::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void*, const void*, std::size_t) const override { stand_in::die("an allocator copies"); }
  bool record_event(void*, void* block, c10::Stream) override {
    note_use(block);
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  // Work that is on the current stream of the current device uses the block that contains `data`.
  void note_use(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(const_cast<void*>(data));
    if (after == blocks_.begin()) return;
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, handle_of(current_streams[static_cast<std::size_t>(stand_in::device_now())]));
    std::prev(after)->second.uses.push_back(event);
  }

 private:
  static constexpr std::size_t kRounding = 512;
  struct Block {
    std::size_t bytes = 0;
    bool is_free = true;
    std::vector<cudaEvent_t> uses = {};
  };
  static void drop(void* data);
  static bool are_done(Block& block) {
    for (const cudaEvent_t event : block.uses) {
      if (cudaEventQuery(event) != cudaSuccess) return false;
    }
    for (const cudaEvent_t event : block.uses) cudaEventDestroy(event);
    block.uses.clear();
    return true;
  }
  void take_back(void* data) {
    const std::lock_guard lock(mutex_);
    blocks_[data].is_free = true;
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
};
PinnedAllocator& pinned_allocator = *new PinnedAllocator;  // never destroyed, as above
void PinnedAllocator::drop(void* data) {
  if (data != nullptr) pinned_allocator.take_back(data);
}

bool is_pinned(const void* data) {
  cudaPointerAttributes attributes;
  cudaPointerGetAttributes(&attributes, data);
  return attributes.type == cudaMemoryTypeHost;
}

// While it lives, copies of this thread are part of the stand-in's own work.
thread_local int own_copies = 0;
struct OwnCopies {
  OwnCopies() { ++own_copies; }
  ~OwnCopies() { --own_copies; }
  OwnCopies(const OwnCopies&) = delete;
  OwnCopies& operator=(const OwnCopies&) = delete;
};
void count_wait() {
  if (own_copies > 0) return;
  played::refuse_in_capture("a wait of the host");
  stand_in::counts(stand_in::device_now()).waits += 1;
}

cudaStream_t new_stream() {
  cudaStream_t made = nullptr;
  cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  return made;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return at::kCUDA; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  at::Device getDevice() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(stand_in::device_now())}; }
  void setDevice(at::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(at::Device device) const noexcept override { cudaSetDevice(device.index()); }
  c10::Stream getStream(at::Device device) const override { return stream(device, now(device)); }
  c10::Stream getDefaultStream(at::Device device) const override { return stream(device, 0); }
  // LibTorch has 32 streams for each device, which it hands out in turn. They live as long as the program.
  c10::Stream getNewStream(at::Device device, int) const override {
    static constexpr std::size_t kStreams = 32;
    static std::mutex mutex;
    static std::array<std::vector<cudaStream_t>, stand_in::kDevices> pools;
    static std::array<std::size_t, stand_in::kDevices> handed_out = {};
    const std::lock_guard lock(mutex);
    const auto index = static_cast<std::size_t>(index_of(device));
    if (pools[index].size() < kStreams) {
      const c10::DeviceGuard on(device);
      stand_in::queue_of(pools[index].emplace_back(new_stream())).set_computes();
    }
    return stream(device, static_cast<c10::StreamId>(
                              reinterpret_cast<std::uintptr_t>(pools[index][handed_out[index]++ % kStreams])));
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::StreamId before = now(next.device());
    now(next.device()) = next.id();
    return stream(next.device(), before);
  }
  void* getStreamNativeHandle(const c10::Stream of) const override { return handle_of(of.id()); }
  c10::DeviceIndex deviceCount() const noexcept override { return visible_devices(); }
  void record(void** event, const c10::Stream& of, const c10::DeviceIndex, const c10::EventFlag) const override {
    const c10::DeviceGuard on(of.device());
    cudaEvent_t made = static_cast<cudaEvent_t>(*event);
    if (made == nullptr) cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    cudaEventRecord(made, handle_of(of.id()));
    *event = made;
  }
  void block(void* event, const c10::Stream& of) const override {
    const c10::DeviceGuard on(of.device());
    if (event != nullptr) cudaStreamWaitEvent(handle_of(of.id()), static_cast<cudaEvent_t>(event), 0);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || cudaEventQuery(static_cast<cudaEvent_t>(event)) == cudaSuccess;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  bool queryStream(const c10::Stream& of) const override {
    const c10::DeviceGuard on(of.device());
    return cudaStreamQuery(handle_of(of.id())) == cudaSuccess;
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    count_wait();
    stand_in::wait_until_idle(device);
  }
  void synchronizeStream(const c10::Stream& of) const override {
    const c10::DeviceGuard on(of.device());
    cudaStreamSynchronize(handle_of(of.id()));
  }

 private:
  static c10::Stream stream(at::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {at::kCUDA, index_of(device)}, id);
  }
  static c10::DeviceIndex index_of(at::Device device) {
    return device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(stand_in::device_now());
  }
  static c10::StreamId& now(at::Device device) { return current_streams[static_cast<std::size_t>(index_of(device))]; }
};

// The same memory as a tensor of the CPU, after the work that is on the stream.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return tensor;
  const c10::DeviceGuard on(tensor.device());
  stand_in::queue_of(handle_of(current_streams[static_cast<std::size_t>(tensor.device().index())])).wait_until_idle();
  const at::TensorOptions options = at::TensorOptions().dtype(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  return at::from_blob(stand_in::reach(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_generic(sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   type.value_or(at::kFloat), format);
}
at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           type.value_or(at::kFloat));
}
// Writes the values to a tensor of a device when its stream comes to it. Each operator's result goes this way: until
// somebody waits for the stream, the tensor has its old values.
void write_later(const at::Tensor& to, const at::Tensor& from) {
  // Tasks use LibTorch, so none may be left when the process ends.
  [[maybe_unused]] static const int kAtEnd = std::atexit([] {
    for (int device = 0; device < stand_in::kDevices; ++device) stand_in::wait_until_idle(device);
  });
  const at::NoGradGuard no_grad;
  at::Tensor values = on_cpu(from).to(to.scalar_type(), /*non_blocking=*/false, /*copy=*/true).expand(to.sizes());
  const c10::DeviceGuard on(to.device());
  const cudaStream_t stream = handle_of(current_streams[static_cast<std::size_t>(to.device().index())]);
  stand_in::enqueue(stream, [data = to.const_data_ptr(), sizes = to.sizes().vec(), strides = to.strides().vec(),
                             options = at::TensorOptions().dtype(to.scalar_type()), values = std::move(values)] {
    const at::NoGradGuard inner;
    at::from_blob(stand_in::reach(data), sizes, strides, options).copy_(values);
  });
}
// A copy of dense tensors of which at least one is on a device, and neither in memory that the driver does not know.
// The stream makes it when it comes to it.
void copy_later(const at::Tensor& to, const at::Tensor& from) {
  const at::Device device = to.device().is_cuda() ? to.device() : from.device();
  const c10::DeviceGuard on(device);
  stand_in::enqueue(handle_of(current_streams[static_cast<std::size_t>(device.index())]),
                    [into = to.mutable_data_ptr(), out_of = from.const_data_ptr(), bytes = from.nbytes()] {
                      std::memcpy(stand_in::reach(into), stand_in::reach(out_of), bytes);
                    });
  if (to.device() != from.device()) pinned_allocator.note_use((to.device().is_cuda() ? from : to).const_data_ptr());
}
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool is_plain = to.is_contiguous() && from.is_contiguous() && to.scalar_type() == from.scalar_type() &&
                        to.sizes() == from.sizes();
  if (to.device().is_cuda() && from.device().is_cuda()) {
    if (is_plain && to.device() == from.device()) {
      copy_later(to, from);
    } else {
      const bool is_recorded = played::is_recorded();
      {
        const stand_in::NotCaptured inner;
        write_later(to, from);
      }
      if (is_recorded) {
        played::record_results({to},
                               [source = played::View(from)] { return std::vector<at::Tensor>{source.tensor()}; });
      }
    }
    return to;
  }
  const void* const here = (to.device().is_cuda() ? from : to).const_data_ptr();
  if (non_blocking && is_plain && is_pinned(here)) {
    copy_later(to, from);
    return to;
  }
  count_wait();
  if (to.device().is_cuda())
    write_later(to, from);
  else
    to.copy_(on_cpu(from));
  return to;
}
at::Tensor& fill(at::Tensor& tensor, const at::Scalar& value) {
  const c10::DeviceGuard on(tensor.device());
  if (tensor.numel() == 0) return tensor;
  stand_in::enqueue(handle_of(current_streams[static_cast<std::size_t>(tensor.device().index())]),
                    [data = tensor.mutable_data_ptr(), sizes = tensor.sizes().vec(), strides = tensor.strides().vec(),
                     options = at::TensorOptions().dtype(tensor.scalar_type()), value] {
                      const at::NoGradGuard no_grad;
                      at::from_blob(stand_in::reach(data), sizes, strides, options).fill_(value);
                    });
  return tensor;
}
at::Tensor& zero(at::Tensor& tensor) { return fill(tensor, 0); }
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool blocks) {
  at::Tensor written = to;
  return copy(written, from, blocks);
}
// Gives the tensor new memory when its shape changes.
void take_shape(const at::Tensor& tensor, c10::IntArrayRef sizes) {
  if (tensor.sizes() == sizes) return;
  const at::Tensor fresh = at::empty(sizes, tensor.options());
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  take_shape(to, from.sizes());
  return copy_from(from, to, false);
}
const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef sizes, std::optional<c10::MemoryFormat>) {
  take_shape(tensor, C10_AS_INTARRAYREF_SLOW(sizes));
  return tensor;
}
at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(tensor, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef sizes) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(sizes));
}
at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}
// The fallback would lose the running statistics, because the operator's schema does not say that it changes them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(const at::Tensor& input,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias,
                                                                 const std::optional<at::Tensor>& mean,
                                                                 const std::optional<at::Tensor>& variance,
                                                                 bool training, double momentum, double eps) {
  const OwnCopies own;
  const auto here = [](const std::optional<at::Tensor>& tensor) {
    return tensor && tensor->defined() ? std::optional(on_cpu(*tensor)) : std::nullopt;
  };
  const bool is_recorded = played::is_recorded();
  std::vector<at::Tensor> results;
  {
    const stand_in::NotCaptured inner;
    const auto [output, saved_mean, saved_variance] = at::native_batch_norm(
        on_cpu(input), here(weight), here(bias), here(mean), here(variance), training, momentum, eps);
    for (const at::Tensor& one : {output, saved_mean, saved_variance}) results.push_back(one.to(input.device()));
  }
  if (is_recorded) {
    const auto view = [](const std::optional<at::Tensor>& tensor) {
      return tensor && tensor->defined() ? std::optional(played::View(*tensor)) : std::nullopt;
    };
    played::record_results(results, [x = played::View(input), w = view(weight), b = view(bias), m = view(mean),
                                     v = view(variance), training, momentum, eps] {
      const auto made = [](const std::optional<played::View>& of) {
        return of ? std::optional(of->tensor()) : std::nullopt;
      };
      const auto [output, saved_mean, saved_variance] =
          at::native_batch_norm(x.tensor(), made(w), made(b), made(m), made(v), training, momentum, eps);
      return std::vector<at::Tensor>{output, saved_mean, saved_variance};
    });
  }
  return {results[0], results[1], results[2]};
}
at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  count_wait();
  return on_cpu(tensor).item();
}
void by_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // On a GPU these operators wait for the numbers on which their result's shape, or an answer to the host, depends.
  static const std::set<std::string> kWaiting = {"aten::nonzero",  "aten::masked_select",      "aten::equal",
                                                 "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim"};
  if (kWaiting.contains(op.schema().name())) count_wait();
  const OwnCopies own;
  if (!played::is_recorded()) return at::native::cpu_fallback(op, stack);
  const std::vector<c10::IValue> arguments = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  {
    const stand_in::NotCaptured inner;
    at::native::cpu_fallback(op, stack);
  }
  played::record_operation(op, arguments, torch::jit::last(*stack, op.schema().returns().size()).vec());
}

[[maybe_unused]] const bool kAllocates = [] {
  c10::SetAllocator(at::kCUDA, &allocator);
  stand_in::set_cache([](int device) { allocator.empty(device); });
  at::setHostAllocator(at::kCUDA, &pinned_allocator);
  return true;
}();

}  // namespace

void reigen::testing::played::free_pool(int pool) { allocator.empty_pool(pool); }

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("copy_", copy);
  library.impl("fill_.Scalar", fill);
  library.impl("zero_", zero);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("resize_", resize);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("native_batch_norm", native_batch_norm);
  library.impl("_local_scalar_dense", local_scalar_dense);
}
TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&by_cpu>()); }

// LibTorch looks for a class of this name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return visible_devices(); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(stand_in::device_now()); }
  int getNumGPUs() const override { return visible_devices(); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  // Random numbers are drawn by the CPU's generator.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator kNotUsed = at::detail::createCPUGenerator();
    return kNotUsed;
  }
};

namespace at {
using RegistererCUDAHooksRegistry = c10::Registerer<std::string, std::unique_ptr<CUDAHooksInterface>, CUDAHooksArgs>;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
