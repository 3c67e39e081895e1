// This build has no LMDB. Reading needs no library.
#include "container/libraries.h"
#include "container/write/samples.h"

namespace reigen::container {

std::unique_ptr<Writer> make_lmdb_writer(const std::filesystem::path&, const WriterOptions&) {
  fail_not_built_in("LMDB", "liblmdb-dev");
}

std::string_view lmdb_version() { return {}; }

}  // namespace reigen::container
