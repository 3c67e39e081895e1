#include "store/file_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/hash.h"
#include "net/wire.h"
#include "reigen/base/error.h"
#include "store/checks.h"

namespace reigen::store {

namespace {

using namespace std::chrono_literals;
using namespace std::string_view_literals;

constexpr std::string_view kHeader = "ReigenLog1\n\0\0\0\0\0"sv;
constexpr std::size_t kRecordHead = 16;
constexpr std::size_t kMaxBody = kMaxKey + kMaxValue + 16;

enum class Kind : std::uint8_t { kSet = 1, kErase = 2 };

std::uint32_t check_of_length(std::uint32_t length) {
  std::string bytes;
  net::put_u32(bytes, length);
  return static_cast<std::uint32_t>(base::fnv1a(bytes));
}

std::string record(Kind kind, const std::string& key, const std::string& value) {
  std::string body;
  net::put_u8(body, static_cast<std::uint8_t>(kind));
  net::put_bytes(body, key);
  net::put_bytes(body, value);
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string out;
  out.reserve(kRecordHead + body.size());
  net::put_u32(out, length);
  net::put_u32(out, check_of_length(length));
  net::put_u64(out, base::fnv1a(body));
  return out + body;
}

}  // namespace

FileLog::FileLog(const std::string& path) : path_(path) {
  fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd_) throw_io("open", errno);
}

void FileLog::throw_io(const char* call, int error) const {
  throw IoError(Report{.what = fmt::format("the store's file '{}' cannot be used: {} failed", path_, call),
                       .got = base::errno_text(error),
                       .fix = "give a path in a folder that exists and that every rank may write"},
                base::exit_code_of_errno(error));
}

void FileLog::throw_damaged(const std::string& got) const {
  throw DataError(Report{.what = fmt::format("'{}' is not a store's file, or is damaged at byte {}", path_, end_),
                         .got = got,
                         .fix = "give another path; if no job uses the file, remove it"});
}

void FileLog::throw_locked() const {
  throw Timeout(Report{.what = fmt::format("the store's file '{}' stays locked", path_),
                       .got = fmt::format("no lock for {} s", kLockLimit.count()),
                       .fix = "a process that holds it is stopped: 'fuser -v' on the file names it"});
}

bool FileLog::lock(int operation, const Deadline& deadline) {
  for (auto pause = std::chrono::microseconds(50);; pause = std::min<std::chrono::microseconds>(2 * pause, 5ms)) {
    if (::flock(fd_.get(), operation | LOCK_NB) == 0) return true;
    const int error = errno;
    if (error != EWOULDBLOCK && error != EINTR) {
      // Without a lock, ranks that write at the same time would overwrite each other's records.
      throw IoError(Report{.what = fmt::format("the store's file '{}' cannot be locked", path_),
                           .got = base::errno_text(error),
                           .expected = "a file system with locks (Lustre has them with -o flock, NFS with lockd)",
                           .fix = "give a path on such a one, or let the launcher serve the store over TCP"});
    }
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(deadline.remaining(pause));
  }
}

void FileLog::unlock() { ::flock(fd_.get(), LOCK_UN); }

std::string FileLog::read_at(off_t offset, std::size_t size) const {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const ssize_t count = ::pread(fd_.get(), bytes.data() + got, size - got, offset + static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io("pread", errno);
    if (count == 0) throw_damaged("it became shorter while it was read");
    got += static_cast<std::size_t>(count);
  }
  return bytes;
}

// True when the header is there; false when the file is empty or its first writer was killed while it wrote the header.
bool FileLog::replay_header(off_t size) {
  const std::string start = read_at(0, std::min(kHeader.size(), static_cast<std::size_t>(size)));
  if (start != kHeader.substr(0, start.size())) throw_damaged("another kind of file");
  if (start.size() < kHeader.size()) return false;
  end_ = static_cast<off_t>(kHeader.size());
  return true;
}

// Applies the next record to `table_`. Returns false when the file has no further whole record.
bool FileLog::replay_record(off_t size) {
  const auto left = static_cast<std::size_t>(size - end_);
  if (left < kRecordHead) return false;
  const std::string head = read_at(end_, kRecordHead);
  net::WireReader fields(head);
  const std::uint32_t length = fields.u32();
  if (fields.u32() != check_of_length(length) || length > kMaxBody) throw_damaged("a record without a valid length");
  if (left - kRecordHead < length) return false;
  const std::string body = read_at(end_ + static_cast<off_t>(kRecordHead), length);
  if (fields.u64() != base::fnv1a(body)) throw_damaged("a record whose checksum is wrong");
  net::WireReader reader(body);
  const std::uint8_t kind = reader.u8();
  const std::string key(reader.bytes());
  std::string value(reader.bytes());
  reader.expect_end();
  if (kind == static_cast<std::uint8_t>(Kind::kSet)) {
    table_.set(key, std::move(value));
  } else if (kind == static_cast<std::uint8_t>(Kind::kErase)) {
    table_.erase(key);
  } else {
    throw_damaged(fmt::format("a record of unknown kind {}", kind));
  }
  end_ += static_cast<off_t>(kRecordHead + length);
  return true;
}

void FileLog::replay() {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw_io("fstat", errno);
  if (status.st_nlink == 0) {
    throw IoError(Report{.what = fmt::format("the store's file '{}' was removed while it was in use", path_),
                         .fix = "remove it only between jobs"});
  }
  if (status.st_size < end_) throw_damaged("it became shorter");
  if (end_ == 0 && !replay_header(status.st_size)) return;
  while (replay_record(status.st_size)) continue;
}

void FileLog::append(const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done, end_ + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      // If this fails too, an incomplete record remains, which the next writer cuts off.
      [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), end_);
      throw_io("pwrite", error);
    }
    done += static_cast<std::size_t>(count);
  }
  end_ += static_cast<off_t>(done);
}

FileLog::Reading::Reading(FileLog& log, const Deadline& deadline) : log_(log), locked_(log.lock(LOCK_SH, deadline)) {
  if (!locked_) return;
  try {
    log_.replay();
  } catch (...) {
    log_.unlock();
    throw;
  }
}

FileLog::Reading::~Reading() {
  if (locked_) log_.unlock();
}

FileLog::Writing::Writing(FileLog& log) : log_(log) {
  if (!log_.lock(LOCK_EX, Deadline::after(kLockLimit))) log_.throw_locked();
  try {
    log_.replay();
    struct stat status {};
    if (::fstat(log_.fd_.get(), &status) != 0) log_.throw_io("fstat", errno);
    if (status.st_size > log_.end_ && ::ftruncate(log_.fd_.get(), log_.end_) != 0) log_.throw_io("ftruncate", errno);
    if (log_.end_ == 0) log_.append(std::string(kHeader));
  } catch (...) {
    log_.unlock();
    throw;
  }
}

FileLog::Writing::~Writing() { log_.unlock(); }

void FileLog::Writing::set(const std::string& key, const std::string& value) {
  log_.append(record(Kind::kSet, key, value));
  log_.table_.set(key, value);
}

void FileLog::Writing::erase(const std::string& key) {
  log_.append(record(Kind::kErase, key, {}));
  log_.table_.erase(key);
}

}  // namespace reigen::store
