// A dataset of an HDF5 file, whose rows are the values of a field. Under the library's lock, one thread at a time reads
// a whole chunk as it is stored (H5Dread_chunk); the callers unpack it outside of the lock. Contiguous data and values
// of variable length are read from the file itself. What has another form (chunks that divide a row, compact data,
// big-endian numbers, filters that are not known here) is read by the library, row by row. Thread rule: read() may be
// called by many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "container/hdf5/cache.h"
#include "container/hdf5/heap.h"
#include "container/hdf5/library.h"
#include "format/input_file.h"
#include "reigen/container/container.h"

namespace reigen::container {

// An open file.
class Hdf5File {
 public:
  explicit Hdf5File(const std::filesystem::path& path);  // throws IoError and DataError

  const std::string& path() const { return bytes_.path(); }
  const format::InputFile& bytes() const { return bytes_; }
  hid_t id() const { return id_.get(); }
  const GlobalHeap& heap() const { return heap_; }
  // The paths of all datasets with at least one dimension, without the first slash, in the order of names.
  const std::vector<std::string>& datasets() const { return datasets_; }

 private:
  format::InputFile bytes_;
  Hdf5Id id_;
  GlobalHeap heap_;
  std::vector<std::string> datasets_;
};

class Hdf5Dataset {
 public:
  struct Row {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> keeps;
  };

  // Throws DataError for a dataset that is damaged. `number` names it in the cache.
  Hdf5Dataset(const Hdf5File& file, std::string path, std::size_t number);

  const std::string& path() const { return path_; }
  std::int64_t rows() const { return rows_; }
  // What a row is: kind, type and shape. Nothing for types that are no field (compounds, references).
  const std::optional<Field>& field() const { return field_; }
  bool is_integer() const { return is_integer_; }  // one whole number in each row

  Row read(std::int64_t row, ChunkCache& cache, const std::string& place) const;
  // The place of the row in the file, as far as it is known without reading chunks; for messages.
  std::string where(std::int64_t row) const;

 private:
  enum class Way { kChunks, kContiguous, kLibrary };

  void take_type(hid_t type);
  void take_layout(hid_t dataset, hid_t type);
  void take_fill(hid_t creation, hid_t type);
  std::vector<std::byte> library_row(std::int64_t row) const;
  std::vector<std::byte> filled(std::uint64_t size) const;
  std::vector<std::byte> chunk(std::uint64_t number, const std::string& place) const;

  const Hdf5File* file_;
  std::string path_;
  std::size_t number_;
  bool is_ours_;  // the file was written by Reigen
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> shape_;  // of a row
  std::optional<Field> field_;
  bool is_integer_ = false;
  bool is_little_endian_ = true;
  bool varies_ = false;          // values lie in the global heap
  std::uint64_t element_ = 0;    // bytes of an element of a value
  std::uint64_t row_bytes_ = 0;  // as stored: of references, where values vary
  Way way_ = Way::kLibrary;
  std::uint64_t chunk_rows_ = 0;
  std::uint64_t offset_ = 0;  // of contiguous data
  std::vector<int> filters_;
  std::vector<std::byte> fill_;     // the element of rows that were never written; empty: zeros
  std::size_t stored_element_ = 0;  // bytes of an element as stored, for the shuffle
};

}  // namespace reigen::container
