// Writes tars as WebDataset reads them: files %012d.ENDING, shards NAME-000000.tar, with the index of DALI beside each.
#include <fmt/format.h>

#include <utility>

#include "container/sample.h"
#include "container/tar/members.h"
#include "container/tar/npy.h"
#include "container/write/samples.h"
#include "container/write/sharded.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

void require_no_blanks(const std::vector<std::string>& endings) {
  for (const std::string& ending : endings) {
    if (ending.find_first_of(" \n") == std::string::npos) continue;
    throw InvalidArgument(Report{.what = "the name of a field cannot be stored in a tar",
                                 .got = fmt::format("\"{}\"", ending),
                                 .expected = "a name without blanks, which separate the parts of an index",
                                 .fix = "give the field another name"});
  }
}

class TarWriter final : public Writer {
 public:
  TarWriter(const std::filesystem::path& path, const WriterOptions& options)
      : samples_(path.string(), options),
        stored_(samples_.meta().stored),
        files_(path, options, "-{0:06}.tar", [this](format::AtomicFile& file) {
          file.write(bytes_of_text(tar_end()));
          index_.firsts.push_back(index_.files.size());
          TarIndex whole = std::exchange(index_, {});
          whole.endings = stored_;
          return tar_index_text(whole, "tar");
        }) {
    require_no_blanks(stored_);
  }

  void add(const Record& record) override {
    const std::int64_t sample = samples_.count();
    samples_.add(record);
    format::AtomicFile& file = files_.file_for(sample);
    index_.firsts.push_back(index_.files.size());
    for (std::size_t i = 0; i < stored_.size(); ++i) {
      const Field& field = samples_.fields()[i];
      const auto bytes = record.at(i).bytes;
      const std::string name = fmt::format("{:012}.{}", sample, stored_[i]);
      std::string head;
      std::string label;
      if (field.kind == FieldKind::kTensor) head = npy_head(field.type, shape_of(field, record.at(i), name));
      if (field.kind == FieldKind::kLabel) label = text_of_label(record.at(i).label());
      const auto content = field.kind == FieldKind::kLabel ? bytes_of_text(label) : bytes;
      const std::uint64_t size = head.size() + content.size();
      file.write(bytes_of_text(tar_header(name, size)));
      index_.files.push_back({static_cast<std::uint32_t>(i), file.bytes(), size});
      index_.names.push_back(name);
      file.write(bytes_of_text(head));
      file.write(content);
      file.write(bytes_of_text(tar_padding(size)));
    }
  }

  void finish() override {
    samples_.finish();
    files_.finish(samples_);
  }

 private:
  SampleCheck samples_;
  std::vector<std::string> stored_;
  TarIndex index_;  // of the current shard
  ShardedFiles files_;
};

}  // namespace

std::unique_ptr<Writer> make_tar_writer(const std::filesystem::path& path, const WriterOptions& options) {
  return std::make_unique<TarWriter>(path, options);
}

}  // namespace reigen::container
