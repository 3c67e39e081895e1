// libFuzzer target: no input crashes the reader of event files, or makes it read outside of the input.
#include <cstddef>
#include <cstdint>

#include "reigen/format/event_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const std::size_t length = reigen::format::read_events(
      content, [](const auto& event) { return event.tags.size() <= (std::size_t{1} << 30); });
  if (length > size) __builtin_trap();
  return 0;
}
