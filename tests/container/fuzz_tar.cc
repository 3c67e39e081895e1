// libFuzzer: any bytes are either a tar whose files lie within them or a DataError. The same holds for its index and
// for .npy.
#include <fmt/format.h>

#include <cstdlib>

#include "container/sample.h"
#include "container/tar/members.h"
#include "container/tar/npy.h"
#include "format/memory_file.h"
#include "reigen/base/error.h"

namespace {

void require_within(const reigen::container::TarIndex& index, std::uint64_t size) {
  for (const auto& file : index.files) {
    if (file.offset > size || file.size > size - file.offset || file.ending >= index.endings.size()) std::abort();
  }
  if (index.firsts.empty() || index.firsts.back() != index.files.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reigen::container;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = parse_tar_index(text, size)) require_within(*index, size);
  if (const auto npy = parse_npy(bytes_of_text(text)); npy && npy->data.size() > size) std::abort();
  // Mutated headers rarely have the right checksum, so it is put there.
  std::string file(text);
  for (std::size_t at = 0; at + kTarBlockBytes <= file.size(); at += kTarBlockBytes) {
    if (file[at] == '\0') continue;
    unsigned sum = 0;
    for (std::size_t i = 0; i < kTarBlockBytes; ++i) {
      sum += i >= 148 && i < 156 ? unsigned{' '} : static_cast<unsigned char>(file[at + i]);
    }
    file.replace(at + 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  }
  const reigen::tests::MemoryFile memory(file.data(), file.size());
  const reigen::format::InputFile input(memory.path());
  std::string fault;
  const TarIndex index = scan_tar(input, true, &fault);
  require_within(index, size);
  compare_headers(input, index, 0, [](std::int64_t, std::uint64_t) {});
  return 0;
}
