// The framing of TFRecord files: each record is the length of its data (8 bytes), a checksum of the length, the data,
// and a checksum of the data, all little-endian. The checksums are masked CRC32C. Source:
// tensorflow/core/lib/io/record_writer.cc. Thread rule: pure functions; several threads may read one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/input_file.h"

namespace reigen::container {

inline constexpr std::uint64_t kRecordHead = 12;  // bytes before the data
inline constexpr std::uint64_t kRecordTail = 4;   // bytes after the data

std::string framed(std::string_view data);  // the bytes of a record

// Where records begin; the last number is the end of the last one, which is the size of the file.
using RecordOffsets = std::vector<std::uint64_t>;

// A scan of the lengths. Throws DataError, with the offset, for a wrong checksum of a length and for a length beyond
// the end of the file. With `fault`, the scan ends there, and the text of the error is put there.
RecordOffsets scan_records(const format::InputFile& file, std::string* fault = nullptr);

// DALI's index: a line `offset size` for each record, with the framing.
std::string index_text(const RecordOffsets& offsets);
// Nothing if the text is no index of a file of this size.
std::optional<RecordOffsets> parse_record_index(std::string_view text, std::uint64_t file_size);

// Reads the record from `begin` to `end` and checks both checksums. Returns it with its framing; data_of() gives the
// data. Throws DataError, which names `place`.
std::vector<std::byte> read_record(const format::InputFile& file, std::uint64_t begin, std::uint64_t end,
                                   const std::string& place);
std::string_view data_of(const std::vector<std::byte>& record);

}  // namespace reigen::container
