// libFuzzer: any bytes are either an IDX array or a DataError.
#include "format/memory_file.h"
#include "reigen/base/error.h"
#include "reigen/format/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const reigen::tests::MemoryFile file(data, size);
  try {
    const auto array = reigen::format::read_idx(file.path(), {.max_bytes = std::size_t{1} << 26});
    std::size_t elements = 1;
    for (const auto dim : array.dims) elements *= static_cast<std::size_t>(dim);
    if (elements * size_of(array.type) != array.size) std::abort();
  } catch (const reigen::DataError&) {
  }
  return 0;
}
