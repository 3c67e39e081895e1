// libFuzzer: any bytes are either a checkpoint whose tensors can be read or a DataError. A pickle alone is first put
// into an archive with two storages. No fuzzer finds a right CRC-32, so one of the two rounds does not check them and
// reaches the code after this check.
#include <string>
#include <vector>

#include "format/memory_file.h"
#include "format/pt_writer.h"
#include "reigen/base/error.h"
#include "reigen/format/pt_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kRepeated = 1 << 20;
  std::string content(reinterpret_cast<const char*>(data), size);
  if (content.starts_with('\x80')) {
    content = reigen::tests::checkpoint(content, {std::string(48, 'x'), std::string(8, 'y')});
  }
  const reigen::tests::MemoryFile memory(content.data(), content.size());
  for (const bool checksums : {false, true}) {
    try {
      const reigen::format::PtFile file(
          memory.path(), {.max_entries = 10'000, .max_repeated_bytes = kRepeated, .checksums = checksums});
      std::uint64_t total = 0;
      for (const auto& tensor : file.tensors()) {
        total += tensor.bytes;
        if (tensor.storage_offset + tensor.storage_bytes > content.size()) std::abort();
        if (total > content.size() + kRepeated) std::abort();
        std::vector<std::byte> bytes(tensor.bytes);
        file.read(tensor, bytes);
      }
      if (checksums) file.verify();
    } catch (const reigen::DataError&) {
    }
  }
  return 0;
}
