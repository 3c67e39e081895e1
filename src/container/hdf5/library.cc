#include "container/hdf5/library.h"

#include <fmt/format.h>

#include "container/libraries.h"

namespace reigen::container {
namespace {

// A thread may hold the lock while it closes an identifier that an error leaves behind.
std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;  // of the process, as the library's state is (docs/architecture.md)
  return mutex;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Lock::~Hdf5Lock() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

Hdf5Id::~Hdf5Id() {
  if (id_ < 0) return;
  const Hdf5Lock lock;
  close_(id_);
}

std::string hdf5_error_text() {
  std::string text;
  const auto visit = [](unsigned, const H5E_error2_t* error, void* into) -> herr_t {
    auto& result = *static_cast<std::string*>(into);
    if (result.empty() && error->desc != nullptr) result = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &text);
  return text.empty() ? "an error without a text" : text;
}

std::string_view hdf5_version() {
  return std::string_view(H5_VERS_INFO).substr(std::string_view("HDF5 library version: ").size());
}

}  // namespace reigen::container
