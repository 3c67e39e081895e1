#include "container/libraries.h"

#include <fmt/format.h>

#include "reigen/base/error.h"
#include "reigen/container/container.h"

namespace reigen::container {

void fail_not_built_in(std::string_view library, std::string_view package) {
  throw BackendError(Report{.what = fmt::format("this build of Reigen has no {}", library),
                            .got = fmt::format("a container or an option that needs {}", library),
                            .expected = fmt::format("a build with {}", library),
                            .fix = fmt::format("install {} (apt-get install {}), then build again", package, package)});
}

std::vector<Library> libraries() {
  return {{"LMDB", lmdb_version()},
          {"HDF5", hdf5_version()},
          {"libarchive", libarchive_version()},
          {"zstd", zstd_version()}};
}

}  // namespace reigen::container
