// What Reigen's writers store beside the samples: `__meta__`, a JSON text, and `__hashes__`, hash_of() each sample as
// eight bytes, little-endian. LMDB has both as keys, HDF5 as datasets, TFRecord and tar as files of
// their folder. Both have hashes of their own in the JSON, so damage to them is found.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/container/container.h"
#include "reigen/container/writer.h"

namespace reigen::container {

inline constexpr std::string_view kMetaName = "__meta__";
inline constexpr std::string_view kHashesName = "__hashes__";

struct Meta {
  ContainerKind kind = ContainerKind::kLmdb;
  std::int64_t count = 0;
  std::vector<Field> fields = {};
  std::vector<std::string> stored = {};  // the name of each field in the container
  std::vector<std::string> classes = {};
  Compression compression = Compression::kNone;
  std::vector<std::string> shards = {};  // names of the files of TFRecord and tar
  std::uint64_t hashes = 0;              // XXH64 of the bytes of __hashes__
};

std::string to_json(const Meta& meta);

// Throws DataError for text that to_json() did not write: another version, wrong values, another hash. `file` is named.
Meta parse_meta(std::string_view json, const std::string& file);

// Throws DataError unless the bytes are those of the hashes that the meta speaks of.
std::vector<std::uint64_t> parse_hashes(std::span<const std::byte> bytes, const Meta& meta, const std::string& file);
std::span<const std::byte> bytes_of_hashes(const std::vector<std::uint64_t>& hashes);

// The candidates that a container of Reigen offers (names.h).
struct Candidate;
std::vector<Candidate> candidates_of(const Meta& meta);

// zstd, for the values of a container with Compression::kZstd. Throw BackendError if the library is not built in.
// `level` is zstd's own default. unpacked() throws DataError for damaged bytes and for more than `most` bytes.
std::vector<std::byte> zstd_packed(std::span<const std::byte> bytes);
std::vector<std::byte> zstd_unpacked(std::span<const std::byte> bytes, std::uint64_t most, const std::string& place);
void require_zstd();  // throws BackendError if the library is not built in

// Whether the values of this field are stored compressed in such a container.
bool is_packed(const Field& field, Compression compression);

}  // namespace reigen::container
