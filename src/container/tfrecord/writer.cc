// Writes TFRecord: shards NAME-00000-of-00064 of tf.train.Example, with the index of DALI beside each.
#include <utility>

#include "container/sample.h"
#include "container/tfrecord/example.h"
#include "container/tfrecord/records.h"
#include "container/write/samples.h"
#include "container/write/sharded.h"

namespace reigen::container {
namespace {

class TfRecordWriter final : public Writer {
 public:
  TfRecordWriter(const std::filesystem::path& path, const WriterOptions& options)
      : samples_(path.string(), options),
        stored_(samples_.meta().stored),
        files_(path, options, "-{0:05}-of-{1:05}",
               [this](format::AtomicFile&) { return index_text(std::exchange(offsets_, {0})); }) {}

  void add(const Record& record) override {
    const std::int64_t index = samples_.count();
    samples_.add(record);
    ExampleWriter example;
    for (std::size_t i = 0; i < stored_.size(); ++i) {
      const Field& field = samples_.fields()[i];
      const auto bytes = record.at(i).bytes;
      const bool is_tensor = field.kind == FieldKind::kTensor;
      if (field.kind == FieldKind::kLabel || (is_tensor && field.type == format::TensorType::kI64)) {
        example.integers(stored_[i], bytes);
      } else if (is_tensor && field.type == format::TensorType::kF32) {
        example.floats(stored_[i], bytes);
      } else {
        example.bytes(stored_[i], bytes);
      }
    }
    const std::string framed_record = framed(example.message());
    format::AtomicFile& file = files_.file_for(index);
    file.write(bytes_of_text(framed_record));
    offsets_.push_back(file.bytes());
  }

  void finish() override {
    samples_.finish();
    files_.finish(samples_);
  }

 private:
  SampleCheck samples_;
  std::vector<std::string> stored_;
  RecordOffsets offsets_ = {0};  // of the current shard
  ShardedFiles files_;
};

}  // namespace

std::unique_ptr<Writer> make_tfrecord_writer(const std::filesystem::path& path, const WriterOptions& options) {
  return std::make_unique<TfRecordWriter>(path, options);
}

}  // namespace reigen::container
