// libFuzzer: any bytes are either an LMDB file whose values lie within them or a DataError.
#include <cstdlib>

#include "container/lmdb/pages.h"
#include "container/sample.h"
#include "reigen/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reigen::container;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto require_within = [&](std::span<const std::byte> value) {
    if (value.empty()) return;
    if (value.data() < file.data() || value.data() + value.size() > file.data() + size) std::abort();
  };
  try {
    const LmdbPages pages(file, "input");
    if (const auto found = pages.find("000000000000.jpg")) require_within(found->value);
    pages.walk("000000000001", [&](const LmdbPages::Entry& entry) {
      require_within(entry.found.value);
      return true;
    });
    pages.check();
  } catch (const reigen::DataError&) {
  }
  return 0;
}
