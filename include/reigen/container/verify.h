// Looks at whole containers: what they hold, whether they are undamaged, and the index of their samples.
// Thread rule: pure functions of the file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reigen/container/container.h"

namespace reigen::container {

struct Fault {
  std::int64_t sample = -1;  // -1: of the container, not of one sample
  std::string text;          // container, sample, offset, and what is wrong
};

struct Verified {
  std::int64_t samples = 0;  // in which no fault was found
  std::uint64_t bytes = 0;   // of all their values
  bool has_hashes = false;   // the container stores a hash of every sample
  std::vector<Fault> faults = {};
};

struct VerifyOptions {
  int workers = 1;  // threads that read and check samples
  // Is called with the bytes of every picture and the place of its sample, by several threads at once. Throws DataError
  // for a picture that cannot be decoded. This floor decodes none itself; without the function, pictures are bytes.
  std::function<void(std::span<const std::byte> picture, const std::string& where)> check_picture = {};
  // Is called after every sample, by one thread at a time. If it throws, verify() ends with this exception.
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
};

// Reads every byte of every sample. Compares the checksums of the format, the stored hashes, the stored index with a
// scan, and the number of samples. Goes on after a fault as far as the format allows; where a damaged length hides the
// rest of a shard, the fault says so. Faults of samples are in the order of the samples, one for each. Throws IoError
// for a missing file or shard, BackendError and InvalidArgument as open() does. Damage that keeps the container from
// being opened is a fault of the container. Memory: a sample for each worker.
Verified verify(const std::filesystem::path& path, const OpenOptions& options = {}, const VerifyOptions& how = {});

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
