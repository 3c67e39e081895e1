// This build has no libarchive.
#include "container/libraries.h"
#include "container/readers.h"

namespace reigen::container {

std::unique_ptr<Reader> open_packed_tar(const ShardSet&, const OpenOptions&) {
  fail_not_built_in("libarchive", "libarchive-dev");
}

std::string_view libarchive_version() { return {}; }

}  // namespace reigen::container
