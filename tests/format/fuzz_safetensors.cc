// libFuzzer: any bytes are either a safetensors file whose tensors can be read or a DataError.
#include <vector>

#include "format/memory_file.h"
#include "reigen/base/error.h"
#include "reigen/format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const reigen::tests::MemoryFile memory(data, size);
  try {
    const reigen::format::SafetensorsFile file(memory.path());
    for (const auto& tensor : file.tensors()) {
      if (tensor.offset + tensor.bytes > size) std::abort();
      std::vector<std::byte> bytes(tensor.bytes);
      file.read(tensor, bytes);
    }
  } catch (const reigen::DataError&) {
  }
  return 0;
}
