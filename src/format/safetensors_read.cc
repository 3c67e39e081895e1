#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "format/file_kind.h"
#include "format/input_file.h"
#include "reigen/base/error.h"
#include "reigen/format/safetensors.h"

namespace reigen::format {
namespace {

constexpr std::uint64_t kMaxOffset = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kShownName = 40;  // bytes of a text in a message
constexpr const char* kFix = "write the file again, or fetch it again";
constexpr const char* kFixType =
    "convert the tensor in Python and save it again with safetensors.torch.save_file, or write the type's right name";

[[noreturn]] void fail(const std::string& path, const std::string& where, std::string got, std::string expected,
                       const char* fix = kFix) {
  throw DataError(Report{.what = fmt::format("'{}' is not a valid safetensors file: {}", path, where),
                         .got = std::move(got),
                         .expected = std::move(expected),
                         .fix = fix});
}

// Interprets the header's JSON while it is parsed. No tree is built, so that memory is bounded by the header's size,
// and repeated names are noticed. The return value true means "go on"; problems throw.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(const std::string& path) : path_(path) {}

  std::vector<TensorEntry> tensors;  // offset: from the start of the data
  Metadata metadata;

  bool null() override {
    // null means no metadata, as in the reference reader.
    if (state_ != State::kRoot || name_ != "__metadata__") unexpected("null");
    if (std::exchange(metadata_seen_, true)) bad("it twice", "it once");
    return true;
  }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(std::int64_t value) override { return unexpected(fmt::format("{}", value)); }
  bool number_float(double, const std::string& text) override { return unexpected(text); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary"); }

  bool number_unsigned(std::uint64_t value) override {
    if ((state_ != State::kShape && state_ != State::kOffsets) || value > kMaxOffset)
      unexpected(fmt::format("{}", value));
    numbers_.push_back(value);
    return true;
  }

  bool string(std::string& text) override {
    if (state_ == State::kMetadata) {
      if (!metadata.emplace(key_, text).second) bad("a key twice", "each key once");
    } else if (state_ == State::kTensor && key_ == "dtype") {
      const auto type = tensor_type_of(text);
      if (!type) bad("dtype '" + text.substr(0, kShownName) + "'", names_of_tensor_types(), kFixType);
      tensors.back().type = *type;
    } else {
      unexpected("'" + text + "'");
    }
    return true;
  }

  bool key(std::string& text) override {
    key_ = text;
    if (state_ == State::kTensor) {
      const unsigned bit = text == "dtype" ? 1u : text == "shape" ? 2u : text == "data_offsets" ? 4u : 0u;
      if (bit == 0) bad("key '" + text + "'", "dtype, shape and data_offsets");
      if ((seen_ & bit) != 0) bad("'" + text + "' twice", "it once");
      seen_ |= bit;
    } else if (state_ == State::kRoot) {
      name_ = text;
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kRoot;
    } else if (state_ == State::kRoot && name_ == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) bad("it twice", "it once");
      state_ = State::kMetadata;
    } else if (state_ == State::kRoot) {
      tensors.emplace_back().name = name_;
      seen_ = 0;
      state_ = State::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor && seen_ != 7)
      bad("an entry without all of its keys", "dtype, shape and data_offsets");
    state_ = state_ == State::kRoot ? State::kDone : State::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || key_ == "dtype") unexpected("an array");
    state_ = key_ == "shape" ? State::kShape : State::kOffsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    TensorEntry& tensor = tensors.back();
    if (state_ == State::kShape) {
      tensor.shape.assign(numbers_.begin(), numbers_.end());
    } else {
      if (numbers_.size() != 2 || numbers_[0] > numbers_[1]) {
        bad(fmt::format("data_offsets [{}]", fmt::join(numbers_, ", ")), "[begin, end] with begin <= end");
      }
      tensor.offset = numbers_[0];
      tensor.bytes = numbers_[1] - numbers_[0];
    }
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception&) override {
    fail(path_, fmt::format("its header is no JSON at byte {}", 8 + position), fmt::format("'{}'", token.substr(0, 40)),
         "a JSON object of tensor descriptions");
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kDone };

  [[noreturn]] void bad(std::string got, std::string expected, const char* fix = kFix) const {
    const auto where = state_ == State::kStart ? "its header" : fmt::format("header entry '{}'", name_);
    fail(path_, where, std::move(got), std::move(expected), fix);
  }
  [[noreturn]] bool unexpected(std::string got) const {
    switch (state_) {
      case State::kStart:
      case State::kDone: bad(std::move(got), "a JSON object");
      case State::kRoot: bad(std::move(got), "an object");
      case State::kMetadata: bad(std::move(got) + " for '" + key_ + "'", "a string");
      case State::kTensor: bad(std::move(got) + " for '" + key_ + "'", key_ == "dtype" ? "a string" : "an array");
      case State::kShape:
      case State::kOffsets: break;
    }
    bad(std::move(got) + " in '" + key_ + "'", "integers from 0 to 2^63 - 1");
  }

  const std::string& path_;
  State state_ = State::kStart;
  std::string name_;  // the current entry's name
  std::string key_;
  std::vector<std::uint64_t> numbers_;
  unsigned seen_ = 0;  // bits for the keys of the current tensor that were parsed
  bool metadata_seen_ = false;
};

std::string describe(const TensorEntry& tensor) { return format::describe(tensor.type, tensor.shape); }

void check_shape(const std::string& path, const TensorEntry& tensor) {
  const auto bytes = bytes_of(tensor.type, tensor.shape);
  if (bytes == tensor.bytes) return;
  std::string expected = fmt::format("{} bytes", bytes.value_or(0));
  if (!bytes) expected = has_whole_bytes(tensor.type) ? "more than 2^63 bytes" : "elements that fill whole bytes";
  fail(path, fmt::format("tensor '{}' at byte {} does not fit its shape", tensor.name, tensor.offset),
       fmt::format("{} bytes", tensor.bytes), fmt::format("{} for {}", expected, describe(tensor)));
}

// The tensors must fill the data exactly: no overlap, no hole, nothing after the last.
void check_tiling(const std::string& path, const std::vector<TensorEntry>& tensors, std::uint64_t data_start,
                  std::uint64_t file_size) {
  std::uint64_t expected = data_start;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset != expected) {
      fail(path,
           fmt::format("tensor '{}' {} at byte {}", tensor.name,
                       tensor.offset < expected ? "overlaps the one before it" : "leaves a hole before it",
                       tensor.offset),
           fmt::format("begin {}", tensor.offset - data_start), fmt::format("begin {}", expected - data_start));
    }
    if (tensor.bytes > file_size - expected) {
      fail(path, fmt::format("truncated: tensor '{}' at byte {} goes past the end", tensor.name, tensor.offset),
           fmt::format("a file of {} bytes", file_size), fmt::format("{} bytes from there on", tensor.bytes));
    }
    expected += tensor.bytes;
  }
  if (expected != file_size) {
    fail(path, fmt::format("it goes on after the last tensor at byte {}", expected),
         fmt::format("a file of {} bytes", file_size), fmt::format("{} bytes", expected));
  }
}

// Throws for a file of another kind. The error names the kind, and does not interpret the first bytes as a header.
void refuse_no_safetensors(const InputFile& file) {
  auto kind = kind_of_file(file);
  if (begins_as_zip(file)) kind = FileKind{"a zip file, as torch.save writes it", "give it a name that ends with .pt"};
  if (!kind) return;
  throw DataError(Report{.what = fmt::format("'{}' is no safetensors file", file.path()),
                         .got = kind->name,
                         .expected = "eight bytes of header length, a JSON header, the tensors' bytes",
                         .fix = kind->fix});
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path) {}

  std::string read_header() const {
    refuse_no_safetensors(file);
    std::uint64_t length = 0;
    if (file.read_at(0, std::as_writable_bytes(std::span(&length, 1))) != 8) {
      fail(file.path(), "no header length at byte 0", fmt::format("a file of {} bytes", file.size()),
           "at least 8 bytes");
    }
    if (length > kMaxSafetensorsHeader || length + 8 > file.size()) {
      fail(file.path(), "header length at byte 0", fmt::format("{} in a file of {} bytes", length, file.size()),
           fmt::format("at most {}, and inside the file", kMaxSafetensorsHeader));
    }
    std::string header(length, '\0');
    if (file.read_at(8, std::as_writable_bytes(std::span(header.data(), header.size()))) != header.size()) {
      fail(file.path(), "the header at byte 8 ends early", "the end of the file", fmt::format("{} bytes", length));
    }
    if (header.empty() || header[0] != '{') fail(file.path(), "header at byte 8", header.substr(0, 1), "'{'");
    return header;
  }

  void parse() {
    const std::string header = read_header();
    // The JSON library takes a zero byte for the end of the text, so that any bytes could follow it unnoticed.
    if (const auto zero = header.find('\0'); zero != std::string::npos) {
      fail(file.path(), fmt::format("its header is no JSON at byte {}", 8 + zero), "a zero byte", "JSON");
    }
    HeaderParser parser(file.path());
    nlohmann::json::sax_parse(header, &parser);
    const std::uint64_t data_start = 8 + header.size();
    tensors = std::move(parser.tensors);
    metadata = std::move(parser.metadata);
    for (TensorEntry& tensor : tensors) {
      if (tensor.offset > kMaxOffset - data_start) {
        fail(file.path(), fmt::format("tensor '{}'", tensor.name), fmt::format("offset {}", tensor.offset),
             fmt::format("offsets inside the file of {} bytes", file.size()));
      }
      tensor.offset += data_start;
      check_shape(file.path(), tensor);
    }
    std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    check_tiling(file.path(), tensors, data_start, file.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!index.emplace(tensors[i].name, i).second) {
        fail(file.path(), fmt::format("header entry '{}'", tensors[i].name), "it twice", "each name once");
      }
    }
  }

  InputFile file;
  std::vector<TensorEntry> tensors;
  Metadata metadata;
  std::unordered_map<std::string_view, std::size_t> index;  // keys: views of names in `tensors`, which do not move
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {
  impl_->parse();
}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<TensorEntry>& SafetensorsFile::tensors() const { return impl_->tensors; }
const Metadata& SafetensorsFile::metadata() const { return impl_->metadata; }
const std::string& SafetensorsFile::path() const { return impl_->file.path(); }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const TensorEntry* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const TensorEntry& tensor : impl_->tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (names.size() > 8) {
    const auto total = names.size();
    names.resize(8);
    names.push_back(fmt::format("... ({} in all)", total));
  }
  throw DataError(Report{.what = fmt::format("'{}' has no tensor '{}'", path(), name),
                         .got = fmt::format("{}", fmt::join(names, ", ")),
                         .expected = std::string(name),
                         .fix = "use the file of the same model"});
}

void SafetensorsFile::read(const TensorEntry& tensor, std::span<std::byte> into, std::uint64_t first) const {
  REIGEN_CHECK(first <= tensor.bytes && into.size() <= tensor.bytes - first,
               "bytes {} to {} of tensor '{}' were asked for, it has {}", first, first + into.size(), tensor.name,
               tensor.bytes);
  const std::size_t got = impl_->file.read_at(tensor.offset + first, into);
  if (got != into.size()) {
    fail(path(), fmt::format("truncated at byte {}, inside tensor '{}'", tensor.offset + first + got, tensor.name),
         fmt::format("{} bytes", got), fmt::format("{} bytes", into.size()));
  }
}

}  // namespace reigen::format
