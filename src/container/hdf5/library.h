// Calls of the HDF5 library. It has one state for the whole process and is not safe for threads everywhere, so one lock
// of ours is held around every call. Nothing that takes long is done under it: neither reading pictures nor unpacking.
// Thread rule: any thread may take the lock; the handles are used under it.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

namespace reigen::container {

// Holds the lock, and keeps the library from printing its errors.
class Hdf5Lock {
 public:
  Hdf5Lock();
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;  // the lock has one owner
  Hdf5Lock& operator=(const Hdf5Lock&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// An identifier of the library, which is closed at the end, under the lock.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);

  Hdf5Id() = default;
  Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Id();
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

std::string hdf5_error_text();  // what the library says about its last error, under the lock

}  // namespace reigen::container
