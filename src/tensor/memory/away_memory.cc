#include "tensor/memory/away_memory.h"

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/base/unique_fd.h"

namespace reigen::tensor {
namespace {

// An area consists of mappings of kSmall bytes each, or of kLarge bytes each if the area has kLargeFrom bytes or more.
// Large areas need large mappings, because the kernel lets a process have only some 65,000 mappings.
constexpr std::size_t kSmall = std::size_t{2} << 20;
constexpr std::size_t kLarge = std::size_t{64} << 20;
constexpr std::size_t kLargeFrom = std::size_t{1} << 30;

// A file whose bits are all set, which reads as NaN in each floating-point type.
UniqueFd not_numbers(std::size_t size) {
  UniqueFd file(REIGEN_SYSCALL(::memfd_create("reigen-away", MFD_CLOEXEC)));
  const std::vector<unsigned char> bytes(size, 0xFF);
  for (std::size_t at = 0; at < size;) {
    at += static_cast<std::size_t>(REIGEN_SYSCALL(::write(file.get(), bytes.data() + at, size - at)));
  }
  return file;
}

// These files remain open as long as the process lives.
const UniqueFd& pattern_of(std::size_t size) {
  if (size == kSmall) {
    static const UniqueFd kFile = not_numbers(kSmall);
    return kFile;
  }
  static const UniqueFd kFile = not_numbers(kLarge);
  return kFile;
}

void* map(void* at, std::size_t bytes, int flags, int file) {
  void* memory = ::mmap(at, bytes, PROT_READ, flags, file, 0);
  if (memory == MAP_FAILED) base::throw_system_error("mmap", errno, __FILE__, __LINE__);
  return memory;
}

std::size_t bytes_of(at::IntArrayRef shape, at::ScalarType type) {
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

// The deleter of storages over an away area. is_away() recognises such a storage by its deleter.
void end_away(void* held) { delete static_cast<std::shared_ptr<void>*>(held); }

}  // namespace

// Maps the pattern file over and over, until the area is full.
std::shared_ptr<void> away_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  auto* const begin = static_cast<std::byte*>(map(nullptr, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  std::shared_ptr<void> area(begin, [bytes](void* memory) { ::munmap(memory, bytes); });
  const std::size_t size = bytes < kLargeFrom ? kSmall : kLarge;
  for (std::size_t at = 0; at < bytes; at += size) {
    map(begin + at, std::min(size, bytes - at), MAP_SHARED | MAP_FIXED, pattern_of(size).get());
  }
  return area;
}

c10::DataPtr away_data(std::shared_ptr<void> memory) {
  void* const data = memory.get();
  return {data, new std::shared_ptr<void>(std::move(memory)), &end_away, at::kCPU};
}

at::Tensor tensor_over(c10::DataPtr data, at::IntArrayRef shape, at::ScalarType type) {
  const c10::DispatchKey key = data.device().is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes_of(shape, type), std::move(data), nullptr, false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                             c10::scalarTypeToTypeMeta(type));
  made.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return made;
}

at::Tensor away_tensor(at::IntArrayRef shape, at::ScalarType type, const at::Device& device) {
  return tensor_over(device.is_cpu() ? away_data(away_memory(bytes_of(shape, type))) : c10::DataPtr(nullptr, device),
                     shape, type);
}

bool is_away(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  const c10::Storage& storage = tensor.storage();
  if (tensor.is_cuda()) return storage.nbytes() > 0 && storage.data() == nullptr;
  return storage.data_ptr().get_deleter() == &end_away;
}

}  // namespace reigen::tensor
