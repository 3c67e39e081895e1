// This build has no HDF5.
#include "container/libraries.h"
#include "container/readers.h"
#include "container/write/samples.h"

namespace reigen::container {

std::unique_ptr<Reader> open_hdf5(const std::filesystem::path&, const OpenOptions&) {
  fail_not_built_in("HDF5", "libhdf5-dev");
}
std::unique_ptr<Writer> make_hdf5_writer(const std::filesystem::path&, const WriterOptions&) {
  fail_not_built_in("HDF5", "libhdf5-dev");
}

std::string_view hdf5_version() { return {}; }

}  // namespace reigen::container
