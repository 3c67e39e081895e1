// Writes the samples of one container into another. The bytes of the result do not depend on the number of workers.
// Thread rule: pack() may be called from any thread; it starts threads of its own.
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
#include "reigen/container/writer.h"

namespace reigen::container {

struct PackOptions {
  ContainerKind kind = ContainerKind::kLmdb;
  Compression compression = Compression::kNone;
  int shards = 1;
  std::optional<std::uint64_t> shuffle = {};  // seed of the order of the samples; empty: the source's order
  int workers = 1;                            // threads that read and recode
  bool force = false;

  // Is called with the bytes of every picture and the place of its sample (for errors), by several threads at once.
  // Returns the bytes to store. Empty: pictures are stored as they are.
  std::function<std::vector<std::byte>(std::span<const std::byte> picture, const std::string& where)> recode = {};
  // The kind, type and shape of what recode returns, if it is no picture; the name is ignored.
  std::optional<Field> recoded = {};
  // Is called after every sample, in order, by the caller's thread. If it throws, pack() ends without a result.
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
};

struct Packed {
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;  // of all values
};

// Memory: some 8 samples for each worker. Throws what Reader::read(), recode and make_writer() throw; the target then
// is as it was. Throws InvalidArgument for a shuffle of a source that can be read only in order.
Packed pack(const Reader& source, const std::filesystem::path& target, const PackOptions& options);

}  // namespace reigen::container
