// The files of one sample of a tar, and what they become.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/names.h"
#include "container/shards/shard_set.h"
#include "reigen/container/container.h"

namespace reigen::container {

struct TarPart {
  std::string ending;
  std::vector<std::byte> bytes;
};

// Which files of a sample become which fields.
struct TarFields {
  std::vector<Field> fields;
  std::vector<std::string> endings;  // of each field
  std::vector<std::string> stored;   // all that are there
  std::vector<std::string> classes;
  std::int64_t label_offset = 0;
  bool are_all = false;  // the fields are all that the meta data name, unchanged

  // The record of the files, one for each field in order. Throws DataError, which names `place`.
  Record record_of(std::vector<std::vector<std::byte>> files, const std::string& place) const;
};

// From the meta data, or from the first sample.
TarFields fields_of_tar(const ShardSet& set, const OpenOptions& options, const std::vector<TarPart>& first);

}  // namespace reigen::container
