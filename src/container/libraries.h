// The libraries that Reigen may be built without. For each, CMake chooses the source that uses it, or no_NAME.cc.
// Thread rule: pure functions.
#pragma once

#include <string_view>

namespace reigen::container {

// Throws BackendError (exit code 69), which names the package of Debian and Ubuntu to install.
[[noreturn]] void fail_not_built_in(std::string_view library, std::string_view package);

// The version of the library; empty if it is not built in.
std::string_view lmdb_version();
std::string_view hdf5_version();
std::string_view libarchive_version();
std::string_view zstd_version();

}  // namespace reigen::container
