// A table of figures (log.csv): a header with the names, and a row for each step, validation and epoch. A row has
// nothing in the columns of names that it lacks. A new name makes a new last column: the header is written anew, and
// earlier rows stay as they are, shorter than the header. Thread rule: used by one thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/files/appended_file.h"

namespace reigen::train {

class CsvFile {
 public:
  // Keeps the rows of an existing file up to step `keep_steps`; 0 empties the file. Throws IoError, and DataError for a
  // file with another first column than `step`.
  CsvFile(std::filesystem::path path, std::int64_t keep_steps);

  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);  // throws IoError
  void flush() { file_->flush(); }                                                           // throws IoError
  const std::string& trouble() const { return file_->trouble(); }                            // as AppendedFile

 private:
  std::size_t column_of(const std::string& name);
  void write_header();

  std::filesystem::path path_;
  std::vector<std::string> columns_;
  std::optional<AppendedFile> file_;
};

}  // namespace reigen::train
