// Reads compressed tars through libarchive. They have no index: samples come in order, and a first pass counts them.
#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>

#include "container/libraries.h"
#include "container/readers.h"
#include "container/sample.h"
#include "container/tar/members.h"
#include "container/tar/parts.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::size_t kArchiveBlock = std::size_t{1} << 20;

struct CloseArchive {
  void operator()(archive* reader) const { archive_read_free(reader); }
};

// The samples of one archive after the other.
class ArchiveStream {
 public:
  explicit ArchiveStream(std::vector<std::filesystem::path> files) : files_(std::move(files)) {}

  // The files of the next sample; nothing at the end. Without `with_bytes`, the parts have no bytes but those of the
  // first sample.
  std::optional<std::vector<TarPart>> next(bool with_bytes) {
    std::vector<TarPart> parts;
    while (pending_ || advance()) {
      const auto split = split_member_name(member_);
      if (!split) {
        pending_ = false;
        continue;
      }
      if (parts.empty()) sample_ = split->sample;
      if (split->sample != sample_) break;
      const bool is_first = samples_ == 0;
      parts.push_back({std::string(split->ending), with_bytes || is_first ? content() : std::vector<std::byte>()});
      pending_ = false;
    }
    if (parts.empty()) return std::nullopt;
    ++samples_;
    return parts;
  }

  std::string where() const {
    return fmt::format("{}, {}", file_ == 0 ? "" : files_[file_ - 1].filename().string(), member_);
  }

 private:
  // Goes to the next file in the archives. False at the end of the last.
  bool advance() {
    for (;;) {
      if (!archive_) {
        if (file_ == files_.size()) return false;
        open_next();
      }
      archive_entry* entry = nullptr;
      const int result = archive_read_next_header(archive_.get(), &entry);
      if (result == ARCHIVE_EOF) {
        archive_.reset();
        sample_.clear();  // a sample does not go on in the next shard
        continue;
      }
      if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail_of_archive();
      const char* const name = archive_entry_pathname(entry);
      if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG) continue;
      member_ = name;
      pending_ = true;
      return true;
    }
  }

  void open_next() {
    archive_.reset(archive_read_new());
    if (!archive_) throw IoError("cannot read an archive: no memory from archive_read_new", ExitCode::kOsResource);
    archive_read_support_filter_all(archive_.get());
    archive_read_support_format_tar(archive_.get());
    const std::string path = files_[file_++].string();
    if (archive_read_open_filename(archive_.get(), path.c_str(), kArchiveBlock) != ARCHIVE_OK) fail_of_archive();
  }

  // The size that an entry says is not trusted: memory grows with the bytes that are there.
  std::vector<std::byte> content() {
    std::vector<std::byte> bytes;
    for (;;) {
      const std::size_t before = bytes.size();
      bytes.resize(before + kArchiveBlock);
      const auto got = archive_read_data(archive_.get(), bytes.data() + before, kArchiveBlock);
      if (got < 0) fail_of_archive();
      bytes.resize(before + static_cast<std::size_t>(got));
      if (got == 0) break;
    }
    bytes.shrink_to_fit();
    return bytes;
  }

  [[noreturn]] void fail_of_archive() const {
    const char* const text = archive_error_string(archive_.get());
    fail_damaged(fmt::format("'{}', after {} samples ({})", files_[file_ - 1].string(), samples_, member_),
                 text == nullptr ? "an archive that cannot be read" : text, "a whole compressed tar");
  }

  std::vector<std::filesystem::path> files_;
  std::size_t file_ = 0;  // the next to open
  std::unique_ptr<archive, CloseArchive> archive_;
  std::string member_;
  bool pending_ = false;  // the member has not been handed out
  std::string sample_;
  std::int64_t samples_ = 0;
};

class PackedTarReader final : public Reader {
 public:
  PackedTarReader(const ShardSet& set, const OpenOptions& options) : set_(set), stream_(set.files) {
    ArchiveStream counting(set.files);
    std::vector<TarPart> first;
    while (auto parts = counting.next(false)) {
      if (size_ == 0) first = std::move(*parts);
      ++size_;
    }
    require_count(set, size_);
    parts_ = fields_of_tar(set, options, first);
  }

  ContainerKind kind() const override { return ContainerKind::kTar; }
  std::string name() const override { return set_.name; }
  std::int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return parts_.fields; }
  const std::vector<std::string>& classes() const override { return parts_.classes; }
  std::vector<std::string> stored_names() const override { return parts_.stored; }
  bool is_sequential() const override { return true; }
  std::string where(std::int64_t index) const override { return fmt::format("sample {} of a compressed tar", index); }

  std::uint64_t stored_bytes() const override {
    std::uint64_t sum = 0;
    for (const auto& path : set_.files) sum += format::InputFile(path).size();
    return sum;
  }

  Record read(std::int64_t index) const override {
    require_index(*this, index);
    const std::lock_guard lock(mutex_);
    if (index < next_) {
      stream_ = ArchiveStream(set_.files);
      next_ = 0;
    }
    std::optional<std::vector<TarPart>> parts;
    for (; next_ <= index; ++next_) parts = stream_.next(next_ == index);
    if (!parts) fail_damaged(place_of(*this, index), "the end of the archives", "as many samples as before");
    std::vector<std::vector<std::byte>> files;
    for (const std::string& ending : parts_.endings) {
      const auto found =
          std::find_if(parts->begin(), parts->end(), [&](const TarPart& part) { return part.ending == ending; });
      if (found == parts->end())
        fail_damaged(place_of(*this, index), fmt::format("no file .{}", ending), "the files of the first sample");
      files.push_back(std::move(found->bytes));
    }
    return parts_.record_of(std::move(files), place_of(*this, index));
  }

 private:
  ShardSet set_;
  TarFields parts_;
  std::int64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable ArchiveStream stream_;
  mutable std::int64_t next_ = 0;  // the sample that stream_ gives next
};

}  // namespace

std::unique_ptr<Reader> open_packed_tar(const ShardSet& shards, const OpenOptions& options) {
  return std::make_unique<PackedTarReader>(shards, options);
}

std::string_view libarchive_version() {
  const std::string_view text = archive_version_string();  // "libarchive 3.6.2"
  return text.substr(text.find(' ') + 1);
}

}  // namespace reigen::container
