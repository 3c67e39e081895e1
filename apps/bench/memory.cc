#include "bench/memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::apps::bench {

std::shared_ptr<std::byte> allocate_private(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = (bytes / kPage + 1) * kPage;
  void* const memory = std::aligned_alloc(kPage, rounded);
  if (memory == nullptr) {
    throw IoError(Report{.what = "no memory for the buffers", .got = format_bytes(rounded), .fix = "a smaller -e"},
                  ExitCode::kOsResource);
  }
  std::memset(memory, 1, rounded);
  return {static_cast<std::byte*>(memory), [](std::byte* begin) { std::free(begin); }};
}

std::size_t slots_of(std::size_t bytes, bool cold) {
  constexpr std::size_t kCold = 64 * kMiB;
  return cold && bytes > 0 ? kCold / bytes + 1 : 1;
}

}  // namespace reigen::apps::bench
