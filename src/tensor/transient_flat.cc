#include "tensor/transient_flat.h"

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/base/unique_fd.h"

namespace reigen::tensor {

namespace {

constexpr std::size_t kPattern = std::size_t{2} << 20;

// Every bit is set, which is a NaN in each type. A constant of the process.
const UniqueFd& not_numbers() {
  static const UniqueFd kFile = [] {
    UniqueFd file(REIGEN_SYSCALL(::memfd_create("reigen-away", MFD_CLOEXEC)));
    const std::vector<unsigned char> bytes(kPattern, 0xFF);
    for (std::size_t at = 0; at < kPattern;) {
      at += static_cast<std::size_t>(REIGEN_SYSCALL(::write(file.get(), bytes.data() + at, kPattern - at)));
    }
    return file;
  }();
  return kFile;
}

void* map(void* at, std::size_t bytes, int flags, int file) {
  void* memory = ::mmap(at, bytes, PROT_READ, flags, file, 0);
  if (memory == MAP_FAILED) base::throw_system_error("mmap", errno, __FILE__, __LINE__);
  return memory;
}

// The pattern over and over: address space, and no memory of its own.
std::shared_ptr<void> make_away(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  auto* const begin = static_cast<std::byte*>(map(nullptr, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  std::shared_ptr<void> area(begin, [bytes](void* memory) { ::munmap(memory, bytes); });
  for (std::size_t at = 0; at < bytes; at += kPattern) {
    map(begin + at, std::min(kPattern, bytes - at), MAP_SHARED | MAP_FIXED, not_numbers().get());
  }
  return area;
}

}  // namespace

TransientFlat::TransientFlat(std::int64_t count, at::ScalarType type)
    : flat_(at::empty({count}, at::TensorOptions().dtype(type))), away_(make_away(flat_.nbytes())) {
  point_to(away_.get());
}

void TransientFlat::put(std::shared_ptr<void> memory) {
  memory_ = std::move(memory);
  point_to(memory_.get());
}

std::shared_ptr<void> TransientFlat::take() {
  point_to(away_.get());
  return std::exchange(memory_, nullptr);
}

void TransientFlat::forget() {
  take();
  ++generation_;
}

// A tensor that outlives this object keeps what it points to.
void TransientFlat::point_to(void* data) {
  auto* const owner = new std::shared_ptr<void>(data == memory_.get() ? memory_ : away_);
  flat_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(
      data, owner, [](void* held) { delete static_cast<std::shared_ptr<void>*>(held); }, at::kCPU));
}

}  // namespace reigen::tensor
