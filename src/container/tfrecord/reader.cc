// Reads TFRecord files of tf.train.Example.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "container/meta.h"
#include "container/names.h"
#include "container/readers.h"
#include "container/sample.h"
#include "container/tfrecord/example.h"
#include "container/tfrecord/records.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kMostRecordIndex = std::uint64_t{1} << 32;  // bytes

struct RecordShard {
  format::InputFile file;
  RecordOffsets offsets;
};

RecordOffsets offsets_of(const format::InputFile& file, bool use_index) {
  const std::filesystem::path index = index_path_of(file.path());
  std::error_code ignored;
  if (use_index && std::filesystem::exists(index, ignored)) {
    // An index that does not fit is of another file. The scan gives the right one.
    if (auto offsets = parse_record_index(read_small_file(index, kMostRecordIndex), file.size())) return *offsets;
  }
  return scan_records(file);
}

class TfRecordReader final : public Reader {
 public:
  TfRecordReader(const ShardSet& set, const OpenOptions& options)
      : name_(set.name), label_offset_(options.label_offset), hashes_(set.hashes) {
    for (const auto& path : set.files) {
      format::InputFile file(path);
      RecordOffsets offsets = offsets_of(file, options.use_index);
      table_.add(offsets.size() - 1);
      shards_.push_back({std::move(file), std::move(offsets)});
    }
    require_count(set, table_.size());
    const std::vector<Candidate> candidates = set.meta ? candidates_of(*set.meta) : candidates_of_first();
    if (set.meta) classes_ = set.meta->classes;
    for (const Candidate& one : candidates) stored_.push_back(one.stored);
    const std::vector<Candidate> offered = usual(candidates, set, options);
    for (const Chosen& chosen : choose(offered, options, name_)) {
      fields_.push_back(chosen.field);
      names_.push_back(offered[chosen.candidate].stored);
    }
    if (label_offset_ != 0 || (set.meta && fields_.size() != set.meta->fields.size())) hashes_.clear();
  }

  ContainerKind kind() const override { return ContainerKind::kTfRecord; }
  std::string name() const override { return name_; }
  std::int64_t size() const override { return table_.size(); }
  const std::vector<Field>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::span<const std::uint64_t> hashes() const override { return hashes_; }
  std::vector<std::string> stored_names() const override { return stored_; }

  std::uint64_t stored_bytes() const override {
    std::uint64_t sum = 0;
    for (const RecordShard& shard : shards_) sum += shard.file.size();
    return sum;
  }

  std::string where(std::int64_t index) const override {
    const auto place = table_.at(index);
    const RecordShard& shard = shards_[place.shard];
    return fmt::format("{}, offset {}", std::filesystem::path(shard.file.path()).filename().string(),
                       shard.offsets[place.sample]);
  }

  Record read(std::int64_t index) const override {
    require_index(*this, index);
    const std::string place = place_of(*this, index);
    auto record = std::make_shared<std::vector<std::byte>>(bytes_at(index, place));
    const auto features = parse_example(data_of(*record));
    if (!features) fail_damaged(place, "a record that is no tf.train.Example", "an Example");
    RecordParts parts(fields_.size());
    for (std::size_t i = 0; i < fields_.size(); ++i) add_value(parts, i, *features, place);
    Record result = parts.build(std::move(record));
    check_record(result, fields_, classes_, place);
    return result;
  }

 private:
  std::vector<std::byte> bytes_at(std::int64_t index, const std::string& place) const {
    const auto at = table_.at(index);
    const RecordShard& shard = shards_[at.shard];
    return read_record(shard.file, shard.offsets[at.sample], shard.offsets[at.sample + 1], place);
  }

  void add_value(RecordParts& parts, std::size_t i, const std::vector<Feature>& features,
                 const std::string& place) const {
    const auto found = std::find_if(features.begin(), features.end(),
                                    [&](const Feature& feature) { return feature.name == names_[i]; });
    if (found == features.end())
      fail_damaged(place, fmt::format("no feature {}", names_[i]), "the features of the first record");
    const Field& field = fields_[i];
    const auto refuse = [&](const std::string& expected) {
      fail_damaged(place, fmt::format("another type or number of values in {}", names_[i]), expected);
    };
    if (field.kind == FieldKind::kLabel) {
      const auto number = integers_in(found->list);
      if (found->kind != FeatureKind::kIntegers || !number || number->size() != sizeof(std::int64_t))
        refuse("one integer");
      parts.label(Value{*number}.label() - label_offset_);
    } else if (found->kind == FeatureKind::kBytes) {
      const auto values = bytes_in(found->list);
      if (!values || values->size() != 1) refuse("one value of bytes");
      parts.view(bytes_of_text(values->front()));
    } else {
      const bool floats = field.kind == FieldKind::kTensor && field.type == format::TensorType::kF32;
      const bool integers = field.kind == FieldKind::kTensor && field.type == format::TensorType::kI64;
      auto values = found->kind == FeatureKind::kFloats && floats       ? floats_in(found->list)
                    : found->kind == FeatureKind::kIntegers && integers ? integers_in(found->list)
                                                                        : std::nullopt;
      if (!values) refuse(describe(field));
      parts.own(std::move(*values));
    }
  }

  // What the first record holds.
  std::vector<Candidate> candidates_of_first() const {
    const std::string place = place_of(*this, 0);
    const std::vector<std::byte> record = bytes_at(0, place);
    const auto features = parse_example(data_of(record));
    if (!features) fail_damaged(place, "a record that is no tf.train.Example", "an Example");
    std::vector<Candidate> candidates;
    for (const Feature& feature : *features) {
      Candidate one{.stored = std::string(feature.name), .field = {.name = usual_name(feature.name)}};
      if (feature.kind == FeatureKind::kBytes) {
        const auto values = bytes_in(feature.list);
        const bool is_one = values && values->size() == 1;
        if (is_one && (begins_as_picture(bytes_of_text(values->front())) || names_picture(feature.name)))
          one.field.kind = FieldKind::kPicture;
      } else if (feature.kind != FeatureKind::kNone) {
        const bool floats = feature.kind == FeatureKind::kFloats;
        const auto values = floats ? floats_in(feature.list) : integers_in(feature.list);
        if (!values) fail_damaged(place, fmt::format("a damaged feature {}", feature.name), "a list of numbers");
        one.field.kind = FieldKind::kTensor;
        one.field.type = floats ? format::TensorType::kF32 : format::TensorType::kI64;
        one.field.shape = {static_cast<std::int64_t>(values->size() / format::size_of(one.field.type))};
        one.may_be_label = !floats && one.field.shape[0] == 1;
      }
      candidates.push_back(std::move(one));
    }
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.stored < b.stored; });
    return candidates;
  }

  // Pictures of others come with a dozen features (image/height, image/object/bbox/xmin, ...). Only the two that
  // training needs are taken by default.
  static std::vector<Candidate> usual(const std::vector<Candidate>& candidates, const ShardSet& set,
                                      const OpenOptions& options) {
    if (set.meta || !options.fields.empty()) return candidates;
    std::vector<Candidate> two;
    bool has_input = false;
    for (const Candidate& one : candidates) {
      has_input = has_input || one.field.name == "input";
      if (one.field.name == "input" || one.field.name == "target") two.push_back(one);
    }
    return has_input ? two : candidates;
  }

  std::string name_;
  std::int64_t label_offset_ = 0;
  std::vector<RecordShard> shards_;
  ShardTable table_;
  std::vector<Field> fields_;
  std::vector<std::string> names_;  // of the feature of each field
  std::vector<std::string> classes_;
  std::vector<std::string> stored_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

std::unique_ptr<Reader> open_tfrecord(const ShardSet& shards, const OpenOptions& options) {
  return std::make_unique<TfRecordReader>(shards, options);
}

}  // namespace reigen::container
