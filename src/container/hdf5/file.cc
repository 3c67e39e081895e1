#include <fmt/format.h>

#include <algorithm>

#include "container/hdf5/dataset.h"
#include "container/sample.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

[[noreturn]] void fail_of_file(const std::string& path, const std::string& got) {
  throw DataError(Report{.what = fmt::format("damaged: '{}'", path),
                         .got = got,
                         .expected = "an HDF5 file",
                         .fix = "restore the file, or pack it again"});
}

// Locks of files are not needed for reading, and not every file system has them.
Hdf5Id open_for_reading(const std::string& path) {
  const Hdf5Lock lock;
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), 0, 1);
  Hdf5Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file) fail_of_file(path, hdf5_error_text());
  const Hdf5Id creation(H5Fget_create_plist(file.get()), H5Pclose);
  std::size_t address = 0;
  std::size_t length = 0;
  if (H5Pget_sizes(creation.get(), &address, &length) < 0 || address != sizeof(std::uint64_t) ||
      length != sizeof(std::uint64_t)) {
    fail_of_file(path, fmt::format("addresses of {} bytes and lengths of {}", address, length));
  }
  return file;
}

std::uint64_t base_of(hid_t file) {
  const Hdf5Lock lock;
  const Hdf5Id creation(H5Fget_create_plist(file), H5Pclose);
  hsize_t block = 0;
  H5Pget_userblock(creation.get(), &block);
  return block;
}

std::vector<std::string> names_in(hid_t file, const std::string& path) {
  const Hdf5Lock lock;
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* into) -> herr_t {
    static_cast<std::vector<std::string>*>(into)->emplace_back(name);
    return 0;
  };
  if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &names) < 0) fail_of_file(path, hdf5_error_text());
  std::vector<std::string> datasets;
  for (const std::string& name : names) {
    const Hdf5Id object(H5Oopen(file, name.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object || H5Iget_type(object.get()) != H5I_DATASET) continue;  // also links to files that are not there
    const Hdf5Id space(H5Dget_space(object.get()), H5Sclose);
    if (H5Sget_simple_extent_ndims(space.get()) >= 1) datasets.push_back(name);
  }
  std::sort(datasets.begin(), datasets.end());
  return datasets;
}

}  // namespace

Hdf5File::Hdf5File(const std::filesystem::path& path)
    : bytes_(path),
      id_(open_for_reading(bytes_.path())),
      heap_(bytes_, base_of(id_.get())),
      datasets_(names_in(id_.get(), bytes_.path())) {}

}  // namespace reigen::container
