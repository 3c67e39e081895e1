#include "train/files/csv_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "format/input_file.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"

namespace reigen::train {

namespace {

// RFC 4180: a name with a comma, a quote or a new line is quoted.
std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

// The names in a header. A new line in a name is not possible here, because a header is one line.
std::vector<std::string> names_in(std::string_view line) {
  std::vector<std::string> names(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"')
      names.back() += line[++i];
    else if (c == '"')
      is_quoted = !is_quoted;
    else if (c == ',' && !is_quoted)
      names.emplace_back();
    else
      names.back() += c;
  }
  return names;
}

std::string without_new_lines(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return name;
}

}  // namespace

CsvFile::CsvFile(std::filesystem::path path, std::int64_t keep_steps) : path_(std::move(path)), columns_{"step"} {
  std::error_code error;
  const auto size = std::filesystem::file_size(path_, error);
  if (keep_steps == 0 || error || size == 0) {
    file_.emplace(path_);
    file_->append("step\n");
    return;
  }
  bool is_header = true;
  file_.emplace(path_, first_lines([&](std::string_view line) {
                  if (std::exchange(is_header, false)) {
                    columns_ = names_in(line);
                    if (columns_.front() == "step") return true;
                    throw DataError(Report{.what = fmt::format("{} is no table of a run", path_.string()),
                                           .got = columns_.front(),
                                           .expected = "step as the first column",
                                           .fix = "move the file away, or go on in another --run.dir"});
                  }
                  const auto step = base::parse<std::int64_t>(line.substr(0, line.find(',')));
                  return step && *step <= keep_steps;
                }));
}

std::size_t CsvFile::column_of(const std::string& name) {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found != columns_.end()) return static_cast<std::size_t>(found - columns_.begin());
  columns_.push_back(name);
  return columns_.size() - 1;
}

void CsvFile::write(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  const std::size_t before = columns_.size();
  std::vector<std::string> cells(before);
  cells[0] = fmt::format("{}", step);
  for (const auto& [name, value] : values) {
    const std::size_t column = column_of(without_new_lines(name));
    if (cells.size() < columns_.size()) cells.resize(columns_.size());
    if (column > 0) cells[column] = std::isnan(value) ? "nan" : fmt::format("{}", value);
  }
  if (columns_.size() > before) write_header();
  while (cells.size() > 1 && cells.back().empty()) cells.pop_back();
  file_->append(fmt::format("{}\n", fmt::join(cells, ",")));
}

void CsvFile::write_header() {
  file_->flush();
  std::string header;
  for (const std::string& name : columns_) header += (header.empty() ? "" : ",") + quoted(name);
  const std::string text = format::read_text(path_);
  const std::string rows = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  file_.reset();
  format::write_file_atomically(path_, std::string_view(header + "\n" + rows));
  file_.emplace(path_, first_lines([](std::string_view) { return true; }));
}

}  // namespace reigen::train
