// The samples of a container.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "data/fingerprint.h"
#include "data/pipeline/source.h"
#include "reigen/base/error.h"
#include "reigen/container/container.h"

namespace reigen::data {

namespace {

c10::ScalarType scalar_type_of(format::TensorType type, const std::string& where) {
  using format::TensorType;
  switch (type) {
    case TensorType::kBool: return c10::kBool;
    case TensorType::kU8: return c10::kByte;
    case TensorType::kI8: return c10::kChar;
    case TensorType::kI16: return c10::kShort;
    case TensorType::kI32: return c10::kInt;
    case TensorType::kI64: return c10::kLong;
    case TensorType::kF16: return c10::kHalf;
    case TensorType::kBF16: return c10::kBFloat16;
    case TensorType::kF32: return c10::kFloat;
    case TensorType::kF64: return c10::kDouble;
    default: break;
  }
  throw InvalidArgument(Report{.what = fmt::format("{} has a tensor of a type that LibTorch has not", where),
                               .got = std::string(format::name_of(type)),
                               .expected = "bool, whole numbers with a sign, U8, or F16, BF16, F32, F64"});
}

class OfContainer : public SampleSource {
 public:
  OfContainer(std::unique_ptr<const container::Reader> reader, bool fast)
      : reader_(std::move(reader)), name_(reader_->name()), fast_(fast) {}

  std::int64_t size() const override { return reader_->size(); }
  const std::string& name() const override { return name_; }
  std::int64_t terms(std::int64_t) const override { return 1; }

  // The classes, what a sample consists of, and the content where the container has a hash of each sample.
  Meaning meaning() const override {
    Meaning facts;
    if (!reader_->classes().empty()) facts.push_back({.name = "classes", .values = reader_->classes(), .one = "class"});
    std::vector<std::string> fields;
    for (const container::Field& field : reader_->fields()) fields.push_back(container::describe(field));
    facts.push_back({.name = "fields", .values = std::move(fields), .one = "field"});
    facts.push_back({.name = "samples", .values = {std::to_string(reader_->size())}});
    if (const auto hashes = reader_->hashes(); !hashes.empty()) {
      format::Hash64 all;
      all.update(reinterpret_cast<const std::byte*>(hashes.data()), hashes.size_bytes());
      facts.push_back({.name = "content", .values = {fingerprint(all)}});
    }
    return facts;
  }

  Sample sample(const Pass&, std::int64_t index) const override {
    const container::Record record = reader_->read(index);
    Sample sample(index, fmt::format("{}, sample {} ({})", name_, index, reader_->where(index)));
    const auto& fields = reader_->fields();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const container::Field& field = fields[i];
      const container::Value& value = record.at(i);
      switch (field.kind) {
        case container::FieldKind::kPicture:
          sample.set(field.name, image::Draft(value.bytes, record.keeps(), sample.where(), {.fast = fast_}));
          break;
        case container::FieldKind::kLabel: sample.set(field.name, scalar(value.label())); break;
        case container::FieldKind::kBytes:
          sample.set(field.name, copy_of(value, {static_cast<std::int64_t>(value.bytes.size())}, c10::kByte));
          break;
        case container::FieldKind::kTensor:
          sample.set(field.name, copy_of(value, container::shape_of(field, value, sample.where()),
                                         scalar_type_of(field.type, sample.where())));
          break;
      }
    }
    return sample;
  }

 private:
  static at::Tensor scalar(std::int64_t value) {
    at::Tensor tensor = at::empty({}, c10::kLong);
    *tensor.mutable_data_ptr<std::int64_t>() = value;
    return tensor;
  }
  // The bytes of a container have any alignment, so they are copied.
  static at::Tensor copy_of(const container::Value& value, const std::vector<std::int64_t>& shape,
                            c10::ScalarType type) {
    at::Tensor tensor = at::empty(shape, type);
    if (!value.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), value.bytes.data(), value.bytes.size());
    return tensor;
  }

  std::unique_ptr<const container::Reader> reader_;
  std::string name_;
  bool fast_;
};

}  // namespace

Pipeline open(const std::filesystem::path& path, const OpenOptions& options) {
  auto reader = container::open(path, {.fields = options.fields,
                                       .without_bytes = true,
                                       .label_offset = options.label_offset,
                                       .labels_file = options.labels_file,
                                       .split = options.split});
  return pipeline_of(std::make_shared<OfContainer>(std::move(reader), options.fast_decode));
}

}  // namespace reigen::data
