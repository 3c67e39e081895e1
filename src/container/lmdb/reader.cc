// Reads LMDB: containers of Reigen by their meta data, others by keys of the form NAME.FIELD or by patterns of keys.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/text.h"
#include "container/lmdb/pages.h"
#include "container/mapped_file.h"
#include "container/meta.h"
#include "container/names.h"
#include "container/readers.h"
#include "container/sample.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kMostUnpacked = std::uint64_t{1} << 34;

// The key of a field in a sample: a text with the sample's number in it, as "image-%09d".
struct KeyPattern {
  std::string before;
  int width = 0;
  std::string after;

  std::string key(std::int64_t number) const { return fmt::format("{}{:0{}}{}", before, number, width, after); }
};

std::optional<KeyPattern> key_pattern(const std::string& text) {
  const auto percent = text.find('%');
  const auto end = text.find('d', percent);
  if (percent == std::string::npos || end == std::string::npos) return std::nullopt;
  const std::string digits = text.substr(percent + 1, end - percent - 1);
  constexpr int kMostWidth = 20;
  const auto width = digits.empty() ? std::optional(0) : base::parse<int>(digits);
  if (!width || *width < 0 || *width > kMostWidth) return std::nullopt;
  return KeyPattern{text.substr(0, percent), *width, text.substr(end + 1)};
}

class LmdbReader final : public Reader {
 public:
  LmdbReader(const std::filesystem::path& path, const OpenOptions& options)
      : file_(std::make_shared<MappedFile>(std::filesystem::is_directory(path) ? path / "data.mdb" : path)),
        name_(path.string()),
        pages_(file_->bytes(), file_->path()),
        label_offset_(options.label_offset) {
    if (const auto found = pages_.find(kMetaName)) {
      take_ours(text_of(found->value), options);
    } else if (std::any_of(options.fields.begin(), options.fields.end(),
                           [](const auto& field) { return key_pattern(field.second).has_value(); })) {
      take_patterns(options);
    } else {
      take_groups(options);
    }
  }

  ContainerKind kind() const override { return ContainerKind::kLmdb; }
  std::string name() const override { return name_; }
  std::int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::span<const std::uint64_t> hashes() const override { return hashes_; }
  std::vector<std::string> stored_names() const override { return stored_; }
  std::uint64_t stored_bytes() const override { return file_->bytes().size(); }

  Record read(std::int64_t index) const override {
    require_index(*this, index);
    RecordParts parts(fields_.size());
    std::string place;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const std::string key = key_of(index, i);
      const auto found = pages_.find(key);
      place = place_of(name_, index, fmt::format("key {}, offset {}", key, found ? found->offset : 0));
      if (!found) fail_damaged(place, "no such key", "a value for each field of a sample");
      file_->will_need(found->value);
      if (fields_[i].kind == FieldKind::kLabel) {
        parts.label(label_of_text(found->value, place) - label_offset_);
      } else if (is_packed(fields_[i], compression_)) {
        parts.own(zstd_unpacked(found->value, kMostUnpacked, place));
      } else {
        parts.view(found->value);
      }
    }
    Record record = parts.build(file_);
    check_record(record, fields_, classes_, place);
    return record;
  }

  std::string where(std::int64_t index) const override { return fmt::format("key {}", key_of(index, 0)); }

 private:
  std::string key_of(std::int64_t index, std::size_t field) const {
    if (!patterns_.empty()) return patterns_[field].key(index + first_);
    return groups_[static_cast<std::size_t>(index)] + "." + keys_[field];
  }

  void take_ours(std::string_view json, const OpenOptions& options) {
    const Meta meta = parse_meta(json, fmt::format("'{}', {}", name_, kMetaName));
    const auto found = pages_.find(kHashesName);
    hashes_ = parse_hashes(found ? found->value : std::span<const std::byte>{}, meta, fmt::format("'{}'", name_));
    size_ = meta.count;
    classes_ = meta.classes;
    compression_ = meta.compression;
    stored_ = meta.stored;
    for (const Chosen& chosen : choose(candidates_of(meta), options, name_)) {
      fields_.push_back(chosen.field);
      patterns_.push_back({"", 12, "." + meta.stored[chosen.candidate]});
    }
    if (fields_.size() != meta.fields.size()) hashes_.clear();  // they are those of whole samples
    if (label_offset_ != 0) hashes_.clear();
  }

  // Others count from 0 or from 1, and may say how many there are.
  void take_patterns(const OpenOptions& options) {
    std::vector<Candidate> candidates;
    for (const auto& [field, text] : options.fields) {
      const auto pattern = key_pattern(text);
      if (!pattern) {
        throw InvalidArgument(Report{.what = fmt::format("a field of '{}' needs a pattern of keys", name_),
                                     .got = fmt::format("{}={}", field, text),
                                     .expected = "the number of the sample in every key, as in image-%09d",
                                     .fix = fmt::format("keys there: {}", first_keys())});
      }
      if (candidates.empty()) first_ = pages_.find(pattern->key(0)) ? 0 : 1;
      const auto value = pages_.find(pattern->key(first_));
      if (!value) {
        throw InvalidArgument(Report{.what = fmt::format("no key '{}' in '{}'", pattern->key(first_), name_),
                                     .got = fmt::format("{}={}", field, text),
                                     .expected = fmt::format("a form that keys have: {}", first_keys()),
                                     .fix = "give the pattern of the keys"});
      }
      candidates.push_back(candidate(text, value->value));
    }
    for (const Chosen& chosen : choose(candidates, options, name_)) {
      fields_.push_back(chosen.field);
      patterns_.push_back(*key_pattern(candidates[chosen.candidate].stored));
    }
    size_ = count_of(patterns_[0]);
  }

  std::int64_t count_of(const KeyPattern& pattern) const {
    if (const auto said = pages_.find("num-samples")) {
      const std::string place = fmt::format("'{}', num-samples", name_);
      const std::int64_t count = label_of_text(said->value, place);
      const auto most = static_cast<std::int64_t>(pages_.entries());
      if (count < 1 || count > most) fail_damaged(place, std::to_string(count), fmt::format("1..{}", most));
      return count;
    }
    std::int64_t there = 0;  // the last that is known to be there
    std::int64_t missing = 1;
    while (pages_.find(pattern.key(first_ + missing))) {
      there = missing;
      missing *= 2;
    }
    while (missing - there > 1) {
      const std::int64_t middle = there + (missing - there) / 2;
      (pages_.find(pattern.key(first_ + middle)) ? there : missing) = middle;
    }
    return missing;
  }

  void take_groups(const OpenOptions& options) {
    std::vector<Candidate> candidates;
    pages_.walk({}, [&](const LmdbPages::Entry& entry) {
      const auto dot = entry.key.find('.');
      if (dot == std::string_view::npos) return true;
      const std::string_view group = entry.key.substr(0, dot);
      if (groups_.empty() || groups_.back() != group) groups_.emplace_back(group);
      if (groups_.size() == 1)
        candidates.push_back(candidate(std::string(entry.key.substr(dot + 1)), entry.found.value));
      return true;
    });
    if (groups_.empty()) {
      throw InvalidArgument(Report{.what = fmt::format("the keys of '{}' have no form that is known", name_),
                                   .got = fmt::format("keys {}", first_keys()),
                                   .expected = "keys NAME.FIELD, or a pattern for each field",
                                   .fix = "--fields input=image-%09d target=label-%09d gives patterns"});
    }
    for (const Candidate& one : candidates) stored_.push_back(one.stored);
    for (const Chosen& chosen : choose(candidates, options, name_)) {
      fields_.push_back(chosen.field);
      keys_.push_back(candidates[chosen.candidate].stored);
    }
    size_ = static_cast<std::int64_t>(groups_.size());
  }

  static Candidate candidate(const std::string& stored, std::span<const std::byte> value) {
    Candidate result{.stored = stored, .field = {.name = usual_name(stored)}};
    if (begins_as_picture(value) || names_picture(stored)) result.field.kind = FieldKind::kPicture;
    try {
      label_of_text(value, "");
      result.may_be_label = true;
    } catch (const DataError&) {
    }
    return result;
  }

  std::string first_keys() const {
    constexpr int kShown = 4;
    std::string text;
    int count = 0;
    pages_.walk({}, [&](const LmdbPages::Entry& entry) {
      text += fmt::format("{}\"{}\"", count == 0 ? "" : ", ", entry.key);
      return ++count < kShown;
    });
    return text.empty() ? "none" : text;
  }

  std::shared_ptr<const MappedFile> file_;
  std::string name_;
  LmdbPages pages_;
  std::int64_t label_offset_ = 0;
  std::int64_t size_ = 0;
  std::int64_t first_ = 0;  // number of the first sample in keys of a pattern
  std::vector<Field> fields_;
  std::vector<std::string> classes_;
  std::vector<std::string> stored_;
  std::vector<KeyPattern> patterns_;  // of each field
  std::vector<std::string> groups_;   // of each sample, where there are no patterns
  std::vector<std::string> keys_;     // of each field, where there are no patterns
  Compression compression_ = Compression::kNone;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

std::unique_ptr<Reader> open_lmdb(const std::filesystem::path& path, const OpenOptions& options) {
  return std::make_unique<LmdbReader>(path, options);
}

}  // namespace reigen::container
