// libFuzzer: any bytes are a checkpoint whose tensors can be read, or a DataError. Sums of CRC-32 are left aside, which
// no fuzzer finds: what they would hide is to be read as well.
#include <vector>

#include "format/memory_file.h"
#include "reigen/base/error.h"
#include "reigen/format/pt_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const reigen::tests::MemoryFile memory(data, size);
  for (const bool checksums : {false, true}) {
    try {
      const reigen::format::PtFile file(memory.path(),
                                        {.max_entries = 10'000, .max_repeated_bytes = 1 << 20, .checksums = checksums});
      for (const auto& tensor : file.tensors()) {
        if (tensor.storage_offset + tensor.storage_bytes > size || tensor.bytes > size + (1 << 20)) std::abort();
        std::vector<std::byte> bytes(tensor.bytes);
        file.read(tensor, bytes);
      }
      if (checksums) file.verify();
    } catch (const reigen::DataError&) {
    }
  }
  return 0;
}
