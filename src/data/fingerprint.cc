#include "data/fingerprint.h"

#include <fmt/format.h>

#include <system_error>

namespace reigen::data {

namespace {

constexpr std::size_t kMostSizes = 10'000;

}  // namespace

std::string fingerprint(const format::Hash64& hash) { return "xxh64 " + format::hash_text(hash.value()); }

std::string fingerprint(const std::filesystem::path& folder, const std::vector<LabelledPath>& files) {
  format::Hash64 hash;
  const std::size_t stride = (files.size() + kMostSizes - 1) / kMostSizes;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::string line = fmt::format("{} {}", files[i].path.lexically_relative(folder).string(), files[i].label);
    if (i % stride == 0) {
      std::error_code error;
      const auto size = std::filesystem::file_size(files[i].path, error);
      line += error ? std::string(" ?") : fmt::format(" {}", size);  // the decoder of the file will report the error
    }
    line += '\0';
    hash.update(line.data(), line.size());
  }
  return fmt::format("{} of the names and sizes of {} files", fingerprint(hash), files.size());
}

}  // namespace reigen::data
