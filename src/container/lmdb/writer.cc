// Writes LMDB with liblmdb: keys %012d.FIELD in order, then __hashes__ and __meta__.
#include <fmt/format.h>
#include <lmdb.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "container/libraries.h"
#include "container/sample.h"
#include "container/write/samples.h"
#include "container/write/staging.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kBatch = 32 * kMiB;  // bytes of a transaction
constexpr std::uint64_t kLmdbPage = 4096;
constexpr std::uint64_t kMostValue = 0xffffffffU;  // bytes; LMDB's own limit

struct Entry {
  std::string key;
  std::vector<std::byte> value;
};

struct CloseEnvironment {
  void operator()(MDB_env* environment) const { mdb_env_close(environment); }
};

class LmdbWriter final : public Writer {
 public:
  LmdbWriter(const std::filesystem::path& path, const WriterOptions& options)
      : staging_(path, options.force), samples_(path.string(), options) {
    std::filesystem::create_directory(staging_.place());
    for (std::size_t i = 0; i < options.fields.size(); ++i) order_.push_back(i);
    const Meta meta = samples_.meta();
    stored_ = meta.stored;
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return stored_[a] < stored_[b]; });
    MDB_env* environment = nullptr;
    check(mdb_env_create(&environment), "mdb_env_create");
    environment_.reset(environment);
    grow(kMiB);
    // Nobody else has the folder, so it needs no lock. finish() syncs it as a whole.
    check(mdb_env_open(environment_.get(), staging_.place().c_str(), MDB_NOLOCK | MDB_NOSYNC, 0666), "mdb_env_open");
  }

  void add(const Record& record) override {
    const std::int64_t index = samples_.count();
    samples_.add(record);
    for (const std::size_t i : order_) {
      const Field& field = samples_.fields()[i];
      const auto bytes = record.at(i).bytes;
      std::vector<std::byte> value;
      if (field.kind == FieldKind::kLabel) {
        value = copy_of(bytes_of_text(text_of_label(record.at(i).label())));
      } else {
        value = is_packed(field, samples_.options().compression) ? zstd_packed(bytes) : copy_of(bytes);
      }
      put(fmt::format("{:012}.{}", index, stored_[i]), std::move(value));
    }
  }

  void finish() override {
    samples_.finish();
    put(std::string(kHashesName), copy_of(bytes_of_hashes(samples_.hashes())));
    put(std::string(kMetaName), copy_of(bytes_of_text(to_json(samples_.meta()))));
    flush();
    check(mdb_env_sync(environment_.get(), 1), "mdb_env_sync");
    environment_.reset();
    staging_.publish();
  }

 private:
  void put(std::string key, std::vector<std::byte> value) {
    if (value.size() > kMostValue) {
      throw InvalidArgument(Report{.what = fmt::format("a value is too large for '{}'", staging_.target().string()),
                                   .got = fmt::format("{} bytes in {}", value.size(), key),
                                   .expected = "less than 4 GiB",
                                   .fix = "choose another kind of container"});
    }
    room_ += (value.size() + 16) / kLmdbPage * kLmdbPage + 4 * kLmdbPage;
    batch_.push_back({std::move(key), std::move(value)});
    if (room_ >= kBatch) flush();
  }

  // Writes the batch in one transaction. The map grows before, so that it never is full and ends little behind the
  // data.
  void flush() {
    MDB_envinfo info{};
    check(mdb_env_info(environment_.get(), &info), "mdb_env_info");
    grow((info.me_last_pgno + 1) * kLmdbPage + room_ + kMiB);
    MDB_txn* transaction = nullptr;
    check(mdb_txn_begin(environment_.get(), nullptr, 0, &transaction), "mdb_txn_begin");
    MDB_dbi database = 0;
    int result = mdb_dbi_open(transaction, nullptr, 0, &database);
    for (std::size_t i = 0; result == 0 && i < batch_.size(); ++i) {
      MDB_val key{batch_[i].key.size(), batch_[i].key.data()};
      MDB_val value{batch_[i].value.size(), batch_[i].value.data()};
      result = mdb_put(transaction, database, &key, &value, MDB_APPEND);
    }
    if (result != 0) mdb_txn_abort(transaction);
    check(result, "mdb_put");
    check(mdb_txn_commit(transaction), "mdb_txn_commit");
    batch_.clear();
    room_ = 0;
  }

  void grow(std::uint64_t bytes) {
    bytes = (bytes + kMiB - 1) / kMiB * kMiB;
    if (bytes <= map_) return;
    map_ = bytes;
    check(mdb_env_set_mapsize(environment_.get(), bytes), "mdb_env_set_mapsize");
  }

  void check(int result, const char* call) const {
    if (result == 0) return;
    const Report report{.what = fmt::format("cannot write '{}'", staging_.target().string()),
                        .got = fmt::format("{} from {}", mdb_strerror(result), call),
                        .expected = "a folder with room that may be written to",
                        .fix = result == ENOSPC ? "free space or choose another folder" : "choose another path"};
    if (result == ENOSPC || result == EDQUOT) throw NoRoom(report);
    throw IoError(report, result > 0 ? base::exit_code_of_errno(result) : ExitCode::kIo);
  }

  Staging staging_;
  SampleCheck samples_;
  std::vector<std::string> stored_;
  std::vector<std::size_t> order_;  // the fields in the order of their keys
  std::unique_ptr<MDB_env, CloseEnvironment> environment_;
  std::vector<Entry> batch_;
  std::uint64_t room_ = 0;  // bytes that the batch may need
  std::uint64_t map_ = 0;
};

}  // namespace

std::unique_ptr<Writer> make_lmdb_writer(const std::filesystem::path& path, const WriterOptions& options) {
  return std::make_unique<LmdbWriter>(path, options);
}

std::string_view lmdb_version() {
  static const char* const kText = mdb_version(nullptr, nullptr, nullptr);  // "LMDB 0.9.24: (July 24, 2019)"
  const std::string_view text = kText;
  const auto first = text.find(' ') + 1;
  return text.substr(first, text.find(':') - first);
}

}  // namespace reigen::container
