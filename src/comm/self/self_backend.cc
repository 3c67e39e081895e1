#include "comm/self/self_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "comm/reduce/reduce.h"
#include "reigen/base/bytes.h"

namespace reigen::comm::self {

const std::string& backend_name() {
  static const std::string name = "self";
  return name;
}

void run(const Call& call) {
  const std::size_t count = extent_of(call, 0, 1).input;
  if (call.kind == OperationKind::kAllToAllV) {
    REIGEN_CHECK(call.counts == call.arrives,
                 "[all_to_all_v] what is given to rank 0 is not what arrives from it\n"
                 "  got: {} elements   expected: {}",
                 call.arrives.front(), call.counts.front());
  }
  if (count == 0) return;
  if (reduces(call.kind)) {  // one input is reduced too, so that NaN, averages and bools are as in any group
    const auto* input = static_cast<const std::byte*>(call.input);
    auto* output = static_cast<std::byte*>(call.output);
    reduce::run({.inputs = &input,
                 .outputs = &output,
                 .input_count = 1,
                 .output_count = 1,
                 .count = count,
                 .type = call.type,
                 .op = call.op,
                 .factors = call.factor == 1 ? nullptr : &call.factor});
    return;
  }
  if (call.kind == OperationKind::kBroadcast || call.input == call.output) return;
  std::memcpy(call.output, call.input, count * size_of(call.type));
}

namespace {

// Larger blocks are mapped: their pages take memory only when they are first written, as those of shared memory do.
constexpr std::size_t kLeastMapped = 1 << 20;

[[noreturn]] void refuse(std::size_t bytes) {
  throw IoError(Report{.what = "out of memory",
                       .got = {},
                       .expected = fmt::format("{} more", format_bytes(bytes)),
                       .fix = "take a smaller model or batch"},
                ExitCode::kOsResource);
}

}  // namespace

std::shared_ptr<void> allocate(std::size_t bytes) {
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
  if (size >= kLeastMapped) {
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) refuse(size);
    return {data, [size](void* pointer) { ::munmap(pointer, size); }};
  }
  void* data = std::aligned_alloc(64, size);
  if (data == nullptr) refuse(size);
  std::memset(data, 0, size);
  return {data, [](void* pointer) { std::free(pointer); }};
}

}  // namespace reigen::comm::self
