// Reads folders of pictures: a folder for each class, or a flat folder with a file of labels.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "container/folder/class_folders.h"
#include "container/folder/walk.h"
#include "container/readers.h"
#include "container/sample.h"
#include "format/input_file.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

namespace fs = std::filesystem;

class FolderReader final : public Reader {
 public:
  FolderReader(fs::path root, std::vector<std::string> classes, std::vector<LabelledFile> files,
               const OpenOptions& options)
      : root_(std::move(root)), classes_(std::move(classes)), files_(std::move(files)) {
    fields_ = {{.name = "input", .kind = FieldKind::kPicture}, {.name = "target", .kind = FieldKind::kLabel}};
    for (const auto& [field, stored] : options.fields) {
      if (field == stored && (field == "input" || field == "target")) continue;
      throw InvalidArgument(Report{.what = fmt::format("no field '{}' in '{}'", stored, root_.string()),
                                   .got = fmt::format("{}={}", field, stored),
                                   .expected = "input and target, the fields of a folder of pictures",
                                   .fix = "leave --fields out"});
    }
  }

  ContainerKind kind() const override { return ContainerKind::kFolder; }
  std::string name() const override { return root_.string(); }
  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  const std::vector<Field>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }

  Record read(std::int64_t index) const override {
    require_index(*this, index);
    const LabelledFile& file = files_[static_cast<std::size_t>(index)];
    const format::InputFile input(file.path);
    std::vector<std::byte> bytes(input.size());
    if (input.read_at(0, bytes) != bytes.size()) {
      fail_damaged(place_of(*this, index), "an end before the size that the file had",
                   fmt::format("{} bytes", bytes.size()));
    }
    RecordParts parts(2);
    parts.own(std::move(bytes));
    parts.label(file.label);
    return parts.build();
  }

  std::string where(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].path.lexically_relative(root_).string();
  }

  std::uint64_t stored_bytes() const override {
    std::uint64_t sum = 0;
    std::error_code ignored;
    for (const LabelledFile& file : files_) {
      const std::uintmax_t size = fs::file_size(file.path, ignored);
      if (!ignored) sum += size;
    }
    return sum;
  }

 private:
  fs::path root_;
  std::vector<std::string> classes_;
  std::vector<LabelledFile> files_;
  std::vector<Field> fields_;
};

struct Line {
  std::string name;
  std::int64_t label = 0;
};

[[noreturn]] void fail_of_labels(const fs::path& path, std::size_t number, const std::string& got) {
  throw DataError(Report{.what = fmt::format("'{}', line {}", path.string(), number),
                         .got = got,
                         .expected = "lines `name label`: the name of a picture, a blank, the number of its class",
                         .fix = "correct the file of labels"});
}

// The name may have blanks: the label is the last word of the line.
std::vector<Line> read_labels(const fs::path& path, std::int64_t label_offset) {
  const format::InputFile file(path);
  std::string text(file.size(), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  std::vector<Line> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (line.empty()) continue;
    const auto blank = line.find_last_of(" \t");
    const auto label = base::parse<std::int64_t>(blank == std::string::npos ? "" : line.substr(blank + 1));
    if (!label) fail_of_labels(path, number, fmt::format("\"{}\"", line.substr(0, 60)));
    line.resize(line.find_last_not_of(" \t", blank) + 1);
    lines.push_back({std::move(line), *label - label_offset});
  }
  return lines;
}

}  // namespace

std::unique_ptr<Reader> open_class_folders(const fs::path& path, const OpenOptions& options) {
  if (options.label_offset != 0) {
    throw InvalidArgument(Report{.what = fmt::format("'{}' has no labels to shift", path.string()),
                                 .got = fmt::format("--label-offset {}", options.label_offset),
                                 .expected = "a container that stores numbers of classes",
                                 .fix = "leave --label-offset out: the classes are the folders"});
  }
  ClassFolders found = class_folders(path, options.split);
  return std::make_unique<FolderReader>(path, std::move(found.classes), std::move(found.files), options);
}

// The samples are those of the file of labels, in its order. Pictures that it does not name are left out.
std::unique_ptr<Reader> open_flat_folder(const fs::path& path, const OpenOptions& options) {
  const std::vector<Line> lines = read_labels(options.labels_file, options.label_offset);
  std::vector<LabelledFile> files;
  std::size_t number = 0;
  for (const Line& line : lines) {
    ++number;
    files.push_back({path / line.name, line.label});
    std::error_code ignored;
    if (fs::is_regular_file(files.back().path, ignored)) continue;
    throw IoError(Report{.what = fmt::format("no picture '{}'", files.back().path.string()),
                         .got = fmt::format("its name in '{}', entry {}", options.labels_file.string(), number),
                         .expected = "a file of that name in the folder",
                         .fix = "check the folder and the file of labels"},
                  ExitCode::kInputMissing);
  }
  if (files.empty()) fail_of_labels(options.labels_file, 1, "no lines");
  return std::make_unique<FolderReader>(path, std::vector<std::string>(), std::move(files), options);
}

}  // namespace reigen::container
