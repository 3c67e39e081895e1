#include "reigen/container/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "container/lmdb/pages.h"
#include "container/mapped_file.h"
#include "container/meta.h"
#include "container/sample.h"
#include "container/shards/detect.h"
#include "container/shards/shard_set.h"
#include "container/tar/members.h"
#include "container/tfrecord/records.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"
#include "reigen/format/hash.h"

namespace reigen::container {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostIndexText = std::uint64_t{1} << 34;

// Reads and checks all samples by several threads, which take one sample after the other.
class SampleChecks {
 public:
  SampleChecks(const Reader& reader, const VerifyOptions& how) : reader_(reader), how_(how) {}

  void check_all(Verified& result) {
    result.has_hashes = !reader_.hashes().empty();
    std::vector<std::thread> threads;
    try {
      for (int i = 1; i < how_.workers; ++i) threads.emplace_back([this] { work(); });
    } catch (...) {  // no more threads: those that run see the error, and end
      fail();
    }
    work();
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    result.samples = whole_;
    result.bytes = bytes_;
    for (auto& [index, text] : faults_) result.faults.push_back({index, std::move(text)});
  }

 private:
  void work() {
    try {
      while (take_one()) {
      }
    } catch (...) {
      fail();
    }
  }

  void fail() {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }

  // False when there is no sample left, or another thread has failed.
  bool take_one() {
    std::unique_lock lock(mutex_);
    if (error_ || next_ == reader_.size()) return false;
    const std::int64_t index = next_++;
    // A container that can be read only in order is read under the lock, which hands out the samples in order.
    const bool in_order = reader_.is_sequential();
    if (!in_order) lock.unlock();
    std::uint64_t bytes = 0;
    std::string fault;
    try {
      const Record record = reader_.read(index);
      if (in_order) lock.unlock();
      bytes = record.bytes();
      fault = fault_of(record, index);
    } catch (const DataError& error) {
      fault = error.what();
    } catch (const IoError& error) {
      fault = error.what();
    }
    if (!lock.owns_lock()) lock.lock();
    if (fault.empty()) {
      ++whole_;
      bytes_ += bytes;
    } else {
      faults_.emplace(index, std::move(fault));
    }
    if (how_.progress) how_.progress(++done_, reader_.size());
    return true;
  }

  // Empty if there is none. Damaged pictures throw.
  std::string fault_of(const Record& record, std::int64_t index) const {
    if (const auto hashes = reader_.hashes(); !hashes.empty()) {
      const std::uint64_t hash = hash_of(record);
      const std::uint64_t stored = hashes[static_cast<std::size_t>(index)];
      if (hash != stored) {
        return fmt::format("{}: the hash {} of its bytes, not {} as stored", place_of(reader_, index),
                           format::hash_text(hash), format::hash_text(stored));
      }
    }
    for (std::size_t i = 0; i < record.values().size() && how_.check_picture; ++i) {
      if (reader_.fields()[i].kind == FieldKind::kPicture)
        how_.check_picture(record.at(i).bytes, name_of_sample(reader_, index));
    }
    return {};
  }

  const Reader& reader_;
  const VerifyOptions& how_;
  std::mutex mutex_;
  std::int64_t next_ = 0;
  std::int64_t done_ = 0;
  std::int64_t whole_ = 0;
  std::uint64_t bytes_ = 0;
  std::map<std::int64_t, std::string> faults_;
  std::exception_ptr error_;
};

// The shards of a path; no files if it has another form.
ShardSet shards_at(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return shards_of_pattern(path);
  return is_lmdb_folder(path) ? ShardSet{} : shards_in_folder(path);
}

std::string index_of_shard(const fs::path& shard, ContainerKind kind, std::string* fault) {
  const format::InputFile file(shard);
  if (kind == ContainerKind::kTfRecord) return index_text(scan_records(file, fault));
  const TarIndex index = scan_tar(file, true, fault);
  return fault != nullptr && !fault->empty() ? std::string() : tar_index_text(index, shard.string());
}

// Nothing for a compressed file, which cannot be scanned.
std::optional<ContainerKind> kind_of_shard(const ShardSet& set, const fs::path& shard) {
  if (set.meta) return set.meta->kind;
  const FileForm form = form_of_file(shard);
  return form.packed_by.empty() ? form.kind : std::nullopt;
}

// Scans every shard, and compares the stored index with the scan.
void scan_shards(const ShardSet& set, Verified& result) {
  for (const fs::path& shard : set.files) {
    const auto kind = kind_of_shard(set, shard);
    if (kind != ContainerKind::kTfRecord && kind != ContainerKind::kTar) continue;
    std::string fault;
    std::string scanned;
    try {
      scanned = index_of_shard(shard, *kind, &fault);
    } catch (const InvalidArgument&) {
      continue;  // names with blanks have no index
    }
    if (!fault.empty()) {
      result.faults.push_back({-1, fault});
      continue;
    }
    const fs::path index = index_path_of(shard);
    std::error_code ignored;
    if (!fs::exists(index, ignored)) {
      if (set.meta)
        result.faults.push_back({-1, fmt::format("'{}' is missing: `reigen data index` writes it", index.string())});
    } else if (read_small_file(index, kMostIndexText) != scanned) {
      result.faults.push_back(
          {-1, fmt::format("'{}' does not fit its shard: `reigen data index` writes it anew", index.string())});
    }
  }
}

// In Reigen's own tars every byte between the files is known. The index finds the files where a header is damaged.
void compare_own_tars(const ShardSet& set, Verified& result) {
  std::int64_t first = 0;
  for (const fs::path& shard : set.files) {
    const format::InputFile file(shard);
    std::error_code ignored;
    std::optional<TarIndex> index;
    if (fs::exists(index_path_of(shard), ignored)) {
      index = parse_tar_index(read_small_file(index_path_of(shard), kMostIndexText), file.size());
    }
    std::string fault;
    if (!index || !ends_as_indexed(file, *index)) index = scan_tar(file, false, &fault);
    compare_headers(file, *index, first, [&](std::int64_t sample, std::uint64_t offset) {
      const std::string what = sample < 0 ? "the end of the tar" : fmt::format("sample {}", sample);
      result.faults.push_back(
          {sample, fmt::format("damaged: '{}', {} (offset {}): other bytes around its files than were written",
                               shard.string(), what, offset)});
    });
    first += static_cast<std::int64_t>(index->samples());
  }
}

// Reading samples does not touch all pages of the tree.
void check_tree(const fs::path& path, Verified& result) {
  try {
    const MappedFile file(fs::is_directory(path) ? path / "data.mdb" : path);
    LmdbPages(file.bytes(), file.path()).check();
  } catch (const DataError& error) {
    result.faults.push_back({-1, error.what()});
  }
}

}  // namespace

Verified verify(const fs::path& path, const OpenOptions& options, const VerifyOptions& how) {
  require_workers(how.workers);
  Verified result;
  OpenOptions opening = options;
  opening.allow_sequential = true;
  std::optional<ShardSet> shards;
  try {
    if (options.labels_file.empty()) shards = shards_at(path);
    if (shards) scan_shards(*shards, result);
    if (shards && shards->meta && shards->meta->kind == ContainerKind::kTar) compare_own_tars(*shards, result);
    std::unique_ptr<Reader> reader;
    try {
      reader = open(path, opening);
    } catch (const DataError&) {
      // A fault of an index or of a shard's end leaves the samples of the other shards readable only with an index.
      if (result.faults.empty()) throw;
      return result;
    }
    if (reader->kind() == ContainerKind::kLmdb) check_tree(path, result);
    SampleChecks(*reader, how).check_all(result);
  } catch (const DataError& error) {
    result.faults.push_back({-1, error.what()});
  }
  return result;
}

Inspected inspect(const Reader& reader, std::int64_t most) {
  Inspected result{.kind = reader.kind(),
                   .samples = reader.size(),
                   .stored_bytes = reader.stored_bytes(),
                   .fields = reader.fields(),
                   .sizes = std::vector<FieldSizes>(reader.fields().size()),
                   .classes = reader.classes(),
                   .stored_names = reader.stored_names(),
                   .has_hashes = !reader.hashes().empty()};
  const std::int64_t count = std::min(std::max<std::int64_t>(most, 1), reader.size());
  for (std::int64_t k = 0; k < count; ++k) {
    // Compressed tars are read in order, so their first samples are looked at.
    const std::int64_t index = reader.is_sequential() ? k : k * reader.size() / count;
    const Record record = reader.read(index);
    bool has_label = false;
    for (std::size_t i = 0; i < result.fields.size(); ++i) {
      const std::uint64_t size = record.at(i).bytes.size();
      FieldSizes& sizes = result.sizes[i];
      sizes.least = k == 0 ? size : std::min(sizes.least, size);
      sizes.most = std::max(sizes.most, size);
      sizes.all += size;
      if (result.fields[i].kind != FieldKind::kLabel || std::exchange(has_label, true)) continue;
      const std::int64_t label = record.at(i).label();
      result.least_label = std::min(result.least_label.value_or(label), label);
      result.most_label = std::max(result.most_label.value_or(label), label);
    }
    ++result.looked_at;
  }
  return result;
}

std::vector<fs::path> write_index(const fs::path& path) {
  const ShardSet shards = shards_at(path);
  std::vector<fs::path> written;
  for (const fs::path& shard : shards.files) {
    const auto kind = kind_of_shard(shards, shard);
    if (kind != ContainerKind::kTfRecord && kind != ContainerKind::kTar) continue;
    written.push_back(index_path_of(shard));
    format::write_file_atomically(written.back(), std::string_view(index_of_shard(shard, *kind, nullptr)));
  }
  if (!written.empty()) return written;
  throw InvalidArgument(Report{.what = fmt::format("'{}' has no index", path.string()),
                               .got = "neither TFRecord nor an uncompressed tar",
                               .expected = "a shard, a pattern or a folder of shards",
                               .fix = "LMDB and HDF5 need no index; compressed tars and folders can have none"});
}

}  // namespace reigen::container
