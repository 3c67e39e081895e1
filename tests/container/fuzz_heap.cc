// libFuzzer: any bytes are either a global heap of HDF5 with a value or a DataError. The same holds for the filters of
// chunks.
#include <cstdlib>

#include "container/hdf5/filters.h"
#include "container/hdf5/heap.h"
#include "format/memory_file.h"
#include "reigen/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reigen::container;
  if (size < kHeapReference) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const reigen::tests::MemoryFile memory(data, size);
  const reigen::format::InputFile file(memory.path());
  try {
    if (GlobalHeap(file, 0).read(bytes.first(kHeapReference), 1, "input").size() > size) std::abort();
  } catch (const reigen::DataError&) {
  }
  const auto rest = bytes.subspan(kHeapReference);
  try {
    const std::vector<int> filters = {kShuffleFilter, kDeflateFilter, kFletcherFilter};
    constexpr std::uint64_t kSize = 4096;
    unfiltered({rest.begin(), rest.end()}, filters, std::to_integer<std::uint32_t>(bytes[0]) & 7U, 4, kSize, "input");
  } catch (const reigen::DataError&) {
  }
  return 0;
}
