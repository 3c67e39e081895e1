#include "container/hdf5/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "container/hdf5/filters.h"
#include "container/meta.h"
#include "container/sample.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

using format::TensorType;

// The enumeration that h5py stores bool as.
bool is_bool(hid_t type) {
  if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  for (const auto& [name, expected] : {std::pair{"FALSE", std::int8_t{0}}, {"TRUE", std::int8_t{1}}}) {
    std::int8_t value = -1;
    const bool is_there = H5Tget_member_index(type, name) >= 0 && H5Tenum_valueof(type, name, &value) >= 0;
    if (!is_there || value != expected) return false;
  }
  return true;
}

bool is_of_this_order(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) return true;
  return H5Tget_size(type) == 1 || H5Tget_order(type) == H5T_ORDER_LE;
}

std::optional<TensorType> number_type(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_ENUM) {
    if (is_bool(type)) return TensorType::kBool;
    const Hdf5Id number(H5Tget_super(type), H5Tclose);
    return is_of_this_order(number.get()) ? number_type(number.get()) : std::nullopt;
  }
  if (kind == H5T_FLOAT) {
    if (size == 8) return TensorType::kF64;
    if (size == 4) return TensorType::kF32;
    // The format of 16 bits is IEEE's if ten of them are the fraction; bfloat16 has seven.
    std::size_t unused = 0;
    std::size_t fraction = 0;
    H5Tget_fields(type, &unused, &unused, &unused, &unused, &fraction);
    if (size == 2) return fraction == 10 ? TensorType::kF16 : TensorType::kBF16;
    return std::nullopt;
  }
  if (kind != H5T_INTEGER) return std::nullopt;
  const bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
  switch (size) {
    case 1: return is_signed ? TensorType::kI8 : TensorType::kU8;
    case 2: return is_signed ? TensorType::kI16 : TensorType::kU16;
    case 4: return is_signed ? TensorType::kI32 : TensorType::kU32;
    case 8: return is_signed ? TensorType::kI64 : TensorType::kU64;
    default: return std::nullopt;
  }
}

// Other reasons for which a chunk has no size are damage. Looks through all chunks, so only such a chunk is asked for.
bool was_never_written(hid_t dataset, const std::vector<hsize_t>& offset) {
  unsigned mask = 0;
  haddr_t address = 0;
  hsize_t size = 0;
  return H5Dget_chunk_info_by_coord(dataset, offset.data(), &mask, &address, &size) >= 0 && address == HADDR_UNDEF;
}

}  // namespace

Hdf5Dataset::Hdf5Dataset(const Hdf5File& file, std::string path, std::size_t number)
    : file_(&file),
      path_(std::move(path)),
      number_(number),
      is_ours_(std::find(file.datasets().begin(), file.datasets().end(), kMetaName) != file.datasets().end()) {
  const Hdf5Lock lock;
  const Hdf5Id dataset(H5Dopen2(file.id(), path_.c_str(), H5P_DEFAULT), H5Dclose);
  const Hdf5Id space(dataset ? H5Dget_space(dataset.get()) : -1, H5Sclose);
  const Hdf5Id type(dataset ? H5Dget_type(dataset.get()) : -1, H5Tclose);
  if (!space || !type)
    fail_damaged(fmt::format("'{}', dataset {}", file.path(), path_), hdf5_error_text(), "a dataset");
  std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(H5Sget_simple_extent_ndims(space.get()), 1)));
  H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
  rows_ = static_cast<std::int64_t>(sizes[0]);
  for (std::size_t i = 1; i < sizes.size(); ++i) shape_.push_back(static_cast<std::int64_t>(sizes[i]));
  take_type(type.get());
  if (field_) take_layout(dataset.get(), type.get());
}

void Hdf5Dataset::take_type(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  Field field{.name = path_};
  element_ = H5Tget_size(type);
  if (kind == H5T_VLEN && shape_.empty()) {
    const Hdf5Id base(H5Tget_super(type), H5Tclose);
    const auto number = number_type(base.get());
    if (!number || !is_of_this_order(base.get())) return;
    varies_ = true;
    element_ = H5Tget_size(base.get());
    field.kind = element_ == 1 ? FieldKind::kBytes : FieldKind::kTensor;
    if (element_ > 1) field.type = *number;
    if (element_ > 1) field.shape = {-1};
  } else if (kind == H5T_STRING || kind == H5T_OPAQUE) {
    varies_ = kind == H5T_STRING && H5Tis_variable_str(type) > 0;
    if (varies_) element_ = 1;
    if (!shape_.empty() && varies_) return;
    field.kind = FieldKind::kBytes;
  } else if (const auto number = number_type(type)) {
    field.kind = FieldKind::kTensor;
    field.type = *number;
    field.shape = shape_;
    is_integer_ = (kind == H5T_INTEGER || kind == H5T_ENUM) && *number != TensorType::kBool && shape_.empty();
    is_little_endian_ = is_of_this_order(type);
  } else {
    return;
  }
  row_bytes_ = varies_ ? kHeapReference : element_;
  for (const std::int64_t size : shape_) {
    const bool overflows =
        size < 0 || (size > 0 && row_bytes_ > (std::uint64_t{1} << 40) / static_cast<std::uint64_t>(size));
    if (overflows)
      fail_damaged(fmt::format("'{}', dataset {}", file_->path(), path_), "rows of more than 2^40 bytes",
                   "smaller ones");
    row_bytes_ *= static_cast<std::uint64_t>(size);
  }
  field_ = field;
}

void Hdf5Dataset::take_layout(hid_t dataset, hid_t type) {
  const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose);
  stored_element_ = varies_ ? kHeapReference : H5Tget_size(type);
  bool is_known = is_little_endian_ && row_bytes_ > 0;
  for (int i = 0; i < std::max(H5Pget_nfilters(creation.get()), 0); ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    unsigned settings = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, &settings);
    filters_.push_back(filter);
    is_known = is_known && is_known_filter(filter);
  }
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(shape_.size() + 1);
    H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    chunk_rows_ = chunk[0];
    bool is_of_rows = chunk_rows_ > 0;
    for (std::size_t i = 0; i < shape_.size(); ++i)
      is_of_rows = is_of_rows && static_cast<std::int64_t>(chunk[i + 1]) == shape_[i];
    if (is_known && is_of_rows) way_ = Way::kChunks;
  } else if (layout == H5D_CONTIGUOUS && is_known && filters_.empty() && H5Pget_external_count(creation.get()) == 0) {
    const haddr_t offset = H5Dget_offset(dataset);
    if (offset != HADDR_UNDEF) {
      offset_ = offset;
      way_ = Way::kContiguous;
    }
  }
  take_fill(creation.get(), type);
}

// What a row has that was never written. Values of variable length are empty then, unless the dataset says otherwise.
void Hdf5Dataset::take_fill(hid_t creation, hid_t type) {
  H5D_fill_value_t state = H5D_FILL_VALUE_UNDEFINED;
  if (way_ != Way::kChunks || H5Pfill_value_defined(creation, &state) < 0) return;
  if (state != H5D_FILL_VALUE_USER_DEFINED) return;
  if (varies_) {
    way_ = Way::kLibrary;
    return;
  }
  fill_.resize(element_);
  if (H5Pget_fill_value(creation, type, fill_.data()) < 0) fill_.clear();
}

std::string Hdf5Dataset::where(std::int64_t row) const {
  if (way_ == Way::kContiguous) {
    return fmt::format("{}, offset {}", path_, offset_ + static_cast<std::uint64_t>(row) * row_bytes_);
  }
  if (way_ == Way::kChunks) return fmt::format("{}, chunk {}", path_, static_cast<std::uint64_t>(row) / chunk_rows_);
  return fmt::format("{}, row {}", path_, row);
}

// Reads a row with the library, which converts numbers to little-endian ones. Of values of variable length it makes a
// copy of its own: some are in no place of the file where our code could find them, as those of compact datasets.
std::vector<std::byte> Hdf5Dataset::library_row(std::int64_t row) const {
  std::vector<std::byte> bytes(varies_ ? sizeof(hvl_t) : row_bytes_);
  const Hdf5Lock lock;
  const Hdf5Id dataset(H5Dopen2(file_->id(), path_.c_str(), H5P_DEFAULT), H5Dclose);
  const Hdf5Id stored(H5Dget_type(dataset.get()), H5Tclose);
  const Hdf5Id type(H5Tcopy(stored.get()), H5Tclose);
  if (!is_little_endian_) H5Tset_order(type.get(), H5T_ORDER_LE);
  const Hdf5Id space(H5Dget_space(dataset.get()), H5Sclose);
  std::vector<hsize_t> start(shape_.size() + 1, 0);
  std::vector<hsize_t> count = {1};
  start[0] = static_cast<hsize_t>(row);
  for (const std::int64_t size : shape_) count.push_back(static_cast<hsize_t>(size));
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
  const Hdf5Id memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose);
  if (H5Dread(dataset.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, bytes.data()) < 0) {
    fail_damaged(fmt::format("'{}', sample {} ({})", file_->path(), row, where(row)), hdf5_error_text(),
                 "a row that can be read");
  }
  if (!varies_) return bytes;
  hvl_t value{};
  const bool is_text = H5Tis_variable_str(type.get()) > 0;
  std::memcpy(is_text ? static_cast<void*>(&value.p) : &value, bytes.data(), is_text ? sizeof value.p : sizeof value);
  if (is_text && value.p != nullptr) value.len = std::strlen(static_cast<const char*>(value.p));
  std::vector<std::byte> own(value.len * element_);
  if (!own.empty()) std::memcpy(own.data(), value.p, own.size());
  H5Dvlen_reclaim(type.get(), memory.get(), H5P_DEFAULT, bytes.data());
  return own;
}

// A chunk that was never written is not in the file. Reigen's own writer writes all of them.
std::vector<std::byte> Hdf5Dataset::filled(std::uint64_t size) const {
  std::vector<std::byte> bytes(size);
  if (fill_.empty()) return bytes;
  for (std::uint64_t at = 0; at + fill_.size() <= size; at += fill_.size()) {
    std::memcpy(bytes.data() + at, fill_.data(), fill_.size());
  }
  return bytes;
}

std::vector<std::byte> Hdf5Dataset::chunk(std::uint64_t number, const std::string& place) const {
  if (row_bytes_ == 0 || chunk_rows_ > (std::uint64_t{1} << 40) / row_bytes_)
    fail_damaged(place, fmt::format("a chunk of {} rows of {} bytes", chunk_rows_, row_bytes_), "at most 2^40 bytes");
  const std::uint64_t size = chunk_rows_ * row_bytes_;
  std::vector<hsize_t> offset(shape_.size() + 1, 0);
  offset[0] = number * chunk_rows_;
  std::vector<std::byte> bytes;
  std::uint32_t mask = 0;
  {
    const Hdf5Lock lock;
    const Hdf5Id dataset(H5Dopen2(file_->id(), path_.c_str(), H5P_DEFAULT), H5Dclose);
    hsize_t stored = 0;
    if (H5Dget_chunk_storage_size(dataset.get(), offset.data(), &stored) < 0) stored = 0;
    if (stored == 0 && !is_ours_ && was_never_written(dataset.get(), offset)) return filled(size);
    if (stored == 0 || stored > file_->bytes().size()) {
      fail_damaged(place, fmt::format("a chunk of {} bytes", stored), "a chunk that lies in the file");
    }
    bytes.resize(stored);
    if (H5Dread_chunk(dataset.get(), H5P_DEFAULT, offset.data(), &mask, bytes.data()) < 0) {
      fail_damaged(place, hdf5_error_text(), "a chunk that can be read");
    }
  }
  return unfiltered(std::move(bytes), filters_, mask, stored_element_, size, place);
}

Hdf5Dataset::Row Hdf5Dataset::read(std::int64_t row, ChunkCache& cache, const std::string& place) const {
  Row result;
  std::vector<std::byte> own;
  if (way_ == Way::kChunks) {
    const std::uint64_t number = static_cast<std::uint64_t>(row) / chunk_rows_;
    const auto bytes = cache.get({number_, number}, [&] { return chunk(number, place); });
    result = {std::span<const std::byte>(*bytes).subspan(static_cast<std::uint64_t>(row) % chunk_rows_ * row_bytes_,
                                                         row_bytes_),
              bytes};
  } else {
    if (way_ == Way::kContiguous) {
      const std::uint64_t most = file_->bytes().size();
      if (row_bytes_ > 0 && static_cast<std::uint64_t>(row) > most / row_bytes_)
        fail_damaged(place, "the end of the file", fmt::format("row {} of {} bytes", row, row_bytes_));
      const std::uint64_t at = offset_ + static_cast<std::uint64_t>(row) * row_bytes_;
      if (at < offset_ || at > file_->bytes().size() || row_bytes_ > file_->bytes().size() - at)
        fail_damaged(place, "the end of the file", fmt::format("{} bytes at offset {}", row_bytes_, at));
      own.resize(row_bytes_);
      if (file_->bytes().read_at(at, own) != own.size())
        fail_damaged(place, "the end of the file", fmt::format("{} bytes at offset {}", row_bytes_, at));
    } else {
      own = library_row(row);
    }
    const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(own));
    result = {*kept, kept};
  }
  if (!varies_ || way_ == Way::kLibrary) return result;
  const auto value = std::make_shared<const std::vector<std::byte>>(file_->heap().read(result.bytes, element_, place));
  return {*value, value};
}

}  // namespace reigen::container
