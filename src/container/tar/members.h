// The members of a tar file: ustar, GNU's and pax's long names, and sizes beyond 8 GiB.
// Source: POSIX.1-2017 pax, "ustar Interchange Format"; GNU tar's tar.h.
// Thread rule: pure functions; several threads may read one file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/input_file.h"

namespace reigen::container {

inline constexpr std::uint64_t kTarBlockBytes = 512;

struct TarFile {
  std::uint32_t ending = 0;  // number in TarIndex::endings
  std::uint64_t offset = 0;  // of the file's bytes
  std::uint64_t size = 0;
};

// The samples of one tar, as WebDataset divides it: neighbouring files whose names are equal up to the first dot behind
// the last slash. Hidden files, files without a dot, and names of the form __name__ belong to no sample.
struct TarIndex {
  std::vector<std::string> endings;   // the parts of names behind the first dot
  std::vector<TarFile> files;         // of all samples
  std::vector<std::uint64_t> firsts;  // the first file of each sample, and the number of files at the end
  std::vector<std::string> names;     // of every file; only where a scan was asked for them

  std::size_t samples() const { return firsts.empty() ? 0 : firsts.size() - 1; }
};

// A scan of the headers. Throws DataError, with the offset, for a header with a wrong checksum, a size beyond the end
// of the file, a file without its end (two blocks of zeros), and bytes behind that end. With `fault`, the scan ends
// there, and the text of the error is put there.
TarIndex scan_tar(const format::InputFile& file, bool with_names = false, std::string* fault = nullptr);

// Compares the bytes between the files, and those after the last, with what tar_header(), tar_padding() and tar_end()
// give for the names "%012d.ENDING" of Reigen's tars, whose first sample has the number `first`. Calls `report` with
// the number of each sample that has other bytes, or -1 for the end of the tar. `index` fits the file.
void compare_headers(const format::InputFile& file, const TarIndex& index, std::int64_t first,
                     const std::function<void(std::int64_t sample, std::uint64_t offset)>& report);

// DALI's index: "v1.2 COUNT", then for each sample groups `ending offset size name`. Throws InvalidArgument for a name
// with a blank, which the format cannot have.
std::string tar_index_text(const TarIndex& index, const std::string& file);
// Nothing if the text is no index that may be of a file of this size.
std::optional<TarIndex> parse_tar_index(std::string_view text, std::uint64_t file_size);
// Whether the tar ends behind the last file of the index.
bool ends_as_indexed(const format::InputFile& file, const TarIndex& index);

// "a/b.seg.png" -> {"a/b", "seg.png"}; nothing for names that belong to no sample.
struct SplitName {
  std::string_view sample;
  std::string_view ending;
};
std::optional<SplitName> split_member_name(std::string_view name);

// The header of a file, with a header for a long name before it if it needs one. Owner, times and mode are the same for
// all, so that the same samples give the same bytes.
std::string tar_header(const std::string& name, std::uint64_t size);
std::string_view tar_padding(std::uint64_t size);  // the zeros after a file of this size
std::string_view tar_end();                        // the end of a tar

}  // namespace reigen::container
