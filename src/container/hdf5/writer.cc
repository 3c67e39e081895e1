// Writes HDF5: a dataset for each field, samples first, in chunks. Pictures and bytes have variable length. The file
// has the newest form of version 1.10, whose meta data have checksums.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "container/hdf5/filters.h"
#include "container/hdf5/library.h"
#include "container/sample.h"
#include "container/write/samples.h"
#include "container/write/staging.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

using format::TensorType;

constexpr std::uint64_t kChunkBytes = kMiB;
constexpr std::uint64_t kMostChunkRows = 8192;

bool varies(const Field& field) {
  const bool is_tensor = field.kind == FieldKind::kTensor;
  return field.kind != FieldKind::kLabel && (!is_tensor || (!field.shape.empty() && field.shape[0] == -1));
}

Hdf5Id half_type() {
  Hdf5Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

// As h5py stores bool.
Hdf5Id bool_type() {
  Hdf5Id type(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  const std::int8_t no = 0;
  const std::int8_t yes = 1;
  H5Tenum_insert(type.get(), "FALSE", &no);
  H5Tenum_insert(type.get(), "TRUE", &yes);
  return type;
}

// The type of an element. Types that HDF5 does not have are opaque bytes.
Hdf5Id element_type(const Field& field) {
  const auto standard = [](hid_t type) { return Hdf5Id(H5Tcopy(type), H5Tclose); };
  if (field.kind == FieldKind::kLabel) return standard(H5T_STD_I64LE);
  if (field.kind != FieldKind::kTensor) return standard(H5T_STD_U8LE);
  switch (field.type) {
    case TensorType::kF64: return standard(H5T_IEEE_F64LE);
    case TensorType::kF32: return standard(H5T_IEEE_F32LE);
    case TensorType::kF16: return half_type();
    case TensorType::kI64: return standard(H5T_STD_I64LE);
    case TensorType::kI32: return standard(H5T_STD_I32LE);
    case TensorType::kI16: return standard(H5T_STD_I16LE);
    case TensorType::kI8: return standard(H5T_STD_I8LE);
    case TensorType::kU8: return standard(H5T_STD_U8LE);
    case TensorType::kU16: return standard(H5T_STD_U16LE);
    case TensorType::kU32: return standard(H5T_STD_U32LE);
    case TensorType::kU64: return standard(H5T_STD_U64LE);
    case TensorType::kBool: return bool_type();
    default: return Hdf5Id(H5Tcreate(H5T_OPAQUE, format::size_of(field.type)), H5Tclose);
  }
}

class Hdf5Writer final : public Writer {
 public:
  Hdf5Writer(const std::filesystem::path& path, const WriterOptions& options)
      : staging_(path, options.force), samples_(path.string(), options) {
    const Hdf5Lock lock;
    const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_file_locking(access.get(), 0, 1);
    const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);  // the same samples give the same bytes
    file_ = Hdf5Id(H5Fcreate(staging_.place().c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
    check(file_.get(), "H5Fcreate");
    for (const Field& field : options.fields) columns_.push_back(column_of(field));
  }

  void add(const Record& record) override {
    samples_.add(record);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      Column& column = columns_[i];
      const Field& field = samples_.fields()[i];
      const bool packs = field.kind == FieldKind::kBytes && is_packed(field, samples_.options().compression);
      if (column.varies) {
        column.values.push_back(packs ? zstd_packed(record.at(i).bytes) : copy_of(record.at(i).bytes));
        column.pending += column.values.back().size();
      } else {
        const auto bytes = record.at(i).bytes;
        column.fixed.insert(column.fixed.end(), bytes.begin(), bytes.end());
      }
      ++column.buffered;
      // Rows of variable length may be written in parts of a chunk; others are written as whole chunks.
      if (column.buffered == column.chunk_rows || column.pending >= 16 * kChunkBytes) flush(column);
    }
  }

  void finish() override {
    samples_.finish();
    for (Column& column : columns_) flush(column);
    {
      const Hdf5Lock lock;
      const std::string meta = to_json(samples_.meta());
      put_whole(kHashesName, H5T_STD_U64LE, samples_.hashes().size(), samples_.hashes().data());
      put_whole(kMetaName, H5T_STD_U8LE, meta.size(), meta.data());
      columns_.clear();
      check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), "H5Fflush");
      file_ = Hdf5Id();
    }
    staging_.publish();
  }

 private:
  struct Column {
    Hdf5Id dataset;
    Hdf5Id type;  // of a row's elements, in memory and in the file
    bool varies = false;
    bool packs = false;  // chunks are packed with zstd
    std::uint64_t element = 0;
    std::vector<hsize_t> shape;  // of a row
    std::uint64_t row_bytes = 0;
    std::uint64_t chunk_rows = 0;
    std::uint64_t written = 0;
    std::uint64_t buffered = 0;
    std::uint64_t pending = 0;  // bytes of `values`
    std::vector<std::byte> fixed;
    std::vector<std::vector<std::byte>> values;
  };

  Column column_of(const Field& field) {
    Column column;
    column.varies = varies(field);
    Hdf5Id element = element_type(field);
    column.element = H5Tget_size(element.get());
    column.row_bytes = column.varies ? 16 : column.element;
    if (column.varies) {
      column.type = Hdf5Id(H5Tvlen_create(element.get()), H5Tclose);
    } else {
      column.type = std::move(element);
      for (const std::int64_t size : field.kind == FieldKind::kTensor ? field.shape : std::vector<std::int64_t>()) {
        column.shape.push_back(static_cast<hsize_t>(size));
        column.row_bytes *= static_cast<std::uint64_t>(size);
      }
    }
    if (column.row_bytes == 0 || (column.varies && field.shape.size() > 1)) {
      throw InvalidArgument(Report{.what = fmt::format("HDF5 cannot store a field of '{}'", staging_.target().string()),
                                   .got = describe(field),
                                   .expected = "tensors with elements; only lists may differ in size",
                                   .fix = "choose another kind of container"});
    }
    column.packs = !column.varies && is_packed(field, samples_.options().compression);
    column.chunk_rows = std::clamp<std::uint64_t>(kChunkBytes / column.row_bytes, 1, kMostChunkRows);
    const std::int64_t count = samples_.options().count;
    if (count > 0) column.chunk_rows = std::min(column.chunk_rows, static_cast<std::uint64_t>(count));
    std::vector<hsize_t> sizes = {0};
    std::vector<hsize_t> most = {H5S_UNLIMITED};
    std::vector<hsize_t> chunk = {column.chunk_rows};
    for (auto* list : {&sizes, &most, &chunk}) list->insert(list->end(), column.shape.begin(), column.shape.end());
    const Hdf5Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), most.data()), H5Sclose);
    const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    H5Pset_obj_track_times(creation.get(), false);
    if (column.packs) H5Pset_filter(creation.get(), kZstdFilter, H5Z_FLAG_OPTIONAL, 0, nullptr);
    column.dataset = Hdf5Id(H5Dcreate2(file_.get(), field.name.c_str(), column.type.get(), space.get(), H5P_DEFAULT,
                                       creation.get(), H5P_DEFAULT),
                            H5Dclose);
    check(column.dataset.get(), "H5Dcreate");
    return column;
  }

  void flush(Column& column) {
    if (column.buffered == 0) return;
    std::vector<std::byte> bytes;
    if (!column.varies) {
      bytes = std::move(column.fixed);
      bytes.resize(column.chunk_rows * column.row_bytes);  // the last chunk is filled up
      if (column.packs) bytes = zstd_packed(bytes);
    }
    const Hdf5Lock lock;
    std::vector<hsize_t> sizes = {column.written + column.buffered};
    sizes.insert(sizes.end(), column.shape.begin(), column.shape.end());
    check(H5Dset_extent(column.dataset.get(), sizes.data()), "H5Dset_extent");
    if (column.varies) {
      write_values(column);
    } else {
      std::vector<hsize_t> offset(sizes.size(), 0);
      offset[0] = column.written;
      check(H5Dwrite_chunk(column.dataset.get(), H5P_DEFAULT, 0, offset.data(), bytes.size(), bytes.data()),
            "H5Dwrite_chunk");
    }
    column.written += column.buffered;
    column.buffered = 0;
    column.pending = 0;
    column.fixed.clear();
    column.values.clear();
  }

  void write_values(Column& column) const {
    std::vector<hvl_t> values;
    for (std::vector<std::byte>& value : column.values) values.push_back({value.size() / column.element, value.data()});
    const hsize_t start = column.written;
    const hsize_t count = column.buffered;
    const Hdf5Id space(H5Dget_space(column.dataset.get()), H5Sclose);
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr);
    const Hdf5Id memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
    check(H5Dwrite(column.dataset.get(), column.type.get(), memory.get(), space.get(), H5P_DEFAULT, values.data()),
          "H5Dwrite");
  }

  void put_whole(std::string_view name, hid_t type, std::uint64_t rows, const void* data) const {
    const hsize_t size = rows;
    const Hdf5Id space(H5Screate_simple(1, &size, nullptr), H5Sclose);
    const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);
    const Hdf5Id dataset(
        H5Dcreate2(file_.get(), std::string(name).c_str(), type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
        H5Dclose);
    check(dataset.get(), "H5Dcreate");
    check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "H5Dwrite");
  }

  // The library does not say which error of the system it met.
  void check(hid_t result, const char* call) const {
    if (result >= 0) return;
    const std::string text = hdf5_error_text();
    const Report report{.what = fmt::format("cannot write '{}'", staging_.target().string()),
                        .got = fmt::format("{} from {}", text, call),
                        .expected = "a folder with room that may be written to",
                        .fix = "free space or choose another folder"};
    if (text.find("No space left") != std::string::npos) throw NoRoom(report);
    throw IoError(report);
  }

  Staging staging_;
  SampleCheck samples_;
  Hdf5Id file_;
  std::vector<Column> columns_;
};

}  // namespace

std::unique_ptr<Writer> make_hdf5_writer(const std::filesystem::path& path, const WriterOptions& options) {
  return std::make_unique<Hdf5Writer>(path, options);
}

}  // namespace reigen::container
