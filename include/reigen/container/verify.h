// Looks at whole containers: what they hold, whether they are undamaged, and the index of their samples.
// Thread rule: pure functions of the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reigen/container/container.h"

namespace reigen::container {

struct Fault {
  std::int64_t sample = -1;  // -1: of the container, not of one sample
  std::string text;          // container, sample, offset, and what is wrong
};

struct Verified {
  std::int64_t samples = 0;  // that were read
  std::uint64_t bytes = 0;   // of all values
  bool has_hashes = false;   // the container stores a hash of every sample
  std::vector<Fault> faults = {};
};

// Reads every byte of every sample. Compares the checksums of the format, the stored hashes, the stored index with a
// scan, and the number of samples. Goes on after a fault as far as the format allows; where a damaged length hides the
// rest of a shard, the fault says so. Throws IoError for a missing file or shard, BackendError and InvalidArgument as
// open() does. Damage that keeps the container from being opened is a fault of the container.
Verified verify(const std::filesystem::path& path, const OpenOptions& options = {});

struct FieldSizes {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  std::uint64_t all = 0;
};

struct Inspected {
  ContainerKind kind = ContainerKind::kFolder;
  std::int64_t samples = 0;
  std::uint64_t stored_bytes = 0;  // size of the files
  std::vector<Field> fields = {};
  std::vector<FieldSizes> sizes = {};  // bytes of each field in the samples that were looked at
  std::int64_t looked_at = 0;
  std::optional<std::int64_t> least_label = {};  // of the first label field in the samples that were looked at
  std::optional<std::int64_t> most_label = {};
  std::vector<std::string> classes = {};
  std::vector<std::string> stored_names = {};
  bool has_hashes = false;
};

// Looks at `most` samples that are spread over the container. Throws as open() and Reader::read() do.
Inspected inspect(const Reader& reader, std::int64_t most = 1000);

// Writes the index of every shard of a TFRecord or tar container as SHARD.idx, in DALI's format, and returns the paths.
// Throws InvalidArgument for containers of other kinds, DataError for a damaged shard, IoError when writing fails.
std::vector<std::filesystem::path> write_index(const std::filesystem::path& path);

}  // namespace reigen::container
