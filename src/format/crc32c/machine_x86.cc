// The instruction crc32 of SSE4.2. The processor that runs the program decides, not the one that compiled it.
#include <nmmintrin.h>

#include <cstring>

#include "format/crc32c/crc32c.h"

namespace reigen::format {
namespace {

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t crc, std::string_view data) {
  std::uint64_t state = crc;
  for (; data.size() >= 8; data.remove_prefix(8)) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, data.data(), 8);
    state = _mm_crc32_u64(state, eight);
  }
  auto last = static_cast<std::uint32_t>(state);
  for (const char c : data) last = _mm_crc32_u8(last, static_cast<unsigned char>(c));
  return last;
}

}  // namespace

std::uint32_t crc32c_by_machine(std::uint32_t crc, std::string_view data) {
  static const bool kHas = __builtin_cpu_supports("sse4.2") != 0;
  return kHas ? by_instruction(crc, data) : crc32c_by_table(crc, data);
}

}  // namespace reigen::format
