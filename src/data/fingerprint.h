// Hashes of data as text, for Dataset::meaning().
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reigen/format/hash.h"

namespace reigen::data {

// The hash as a text such as "xxh64 0123456789abcdef".
std::string fingerprint(const format::Hash64& hash);

// Returns a hash of samples that are files. The hash covers each file's path relative to `folder` and its label, in the
// order of `files`. It also covers the sizes of at most 10,000 evenly spaced files. It does not cover all sizes,
// because each size costs a request on a network file system. The function does not read the files.
struct LabelledPath {
  const std::filesystem::path& path;
  std::int64_t label = 0;
};
std::string fingerprint(const std::filesystem::path& folder, const std::vector<LabelledPath>& files);

}  // namespace reigen::data
