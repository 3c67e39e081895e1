// The records of a zip file as PyTorch writes it: stored, with zip64 fields where sizes need them (PKWARE's
// APPNOTE.TXT). Packed (compressed) records are listed but not unpacked. The reader trusts nothing in the file: the
// directory must fill the bytes before the end record exactly, every record must lie in the file under a header with
// its name, and no two records may overlap. Thread rule: may be read from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/input_file.h"

namespace reigen::format {

struct ZipRecord {
  std::string name;
  std::uint64_t header = 0;  // where its local header begins in the file
  std::uint64_t offset = 0;  // where its content begins in the file
  std::uint64_t size = 0;    // bytes in the file
  std::uint32_t crc = 0;     // of the unpacked content, as the directory gives it
  unsigned method = 0;       // 0 means stored
};

class ZipArchive {
 public:
  // Reads the directory and every record's header. Throws IoError, and DataError with file, offset and record.
  explicit ZipArchive(InputFile file);

  const InputFile& file() const { return file_; }
  const std::vector<ZipRecord>& records() const { return records_; }  // in the directory's order
  const ZipRecord* find(std::string_view name) const;                 // null if there is none

  // Reads the record's bytes from `first` on into `into`. All of these bytes must lie inside the record. Throws
  // IoError, and DataError if the file has shrunk after it was opened.
  void read(const ZipRecord& record, std::uint64_t first, std::span<std::byte> into) const;

  std::uint32_t crc_of_content(const ZipRecord& record) const;  // reads the whole record; throws as read() does
  static std::uint32_t crc_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

 private:
  struct Directory {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t entries = 0;
  };

  Directory find_directory() const;
  void read_end64(std::uint64_t locator_at, Directory& directory, std::uint64_t& ends_at) const;
  void read_directory(const Directory& directory);
  std::size_t read_entry(const Directory& directory, std::span<const std::byte> entry, std::uint64_t at);
  void read_header(ZipRecord& record, std::uint64_t limit) const;
  void check_overlaps() const;
  std::vector<std::byte> bytes_at(std::uint64_t offset, std::uint64_t count, const char* what) const;

  InputFile file_;
  std::vector<ZipRecord> records_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys: views of names in `records_`, which do not move
};

}  // namespace reigen::format
