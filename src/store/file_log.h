// The file of a file store: a header, then records. Records are only ever appended.
//
//   header   "ReigenLog1\n" and five zero bytes
//   record   u32 length of the body, u32 checksum of the length, u64 FNV-1a of the body, body
//   body     u8 kind (1 set, 2 erase), key, value (wire.h)
//
// Writers append under an exclusive file lock, readers read under a shared lock. A writer that is killed leaves an
// incomplete record at the end: readers stop before it, and the next writer cuts it off. Anything else that does not
// fit the format is damage. Thread rule: one thread at a time uses a FileLog; any number of processes may use the file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "reigen/base/deadline.h"
#include "reigen/base/unique_fd.h"
#include "store/table.h"

namespace reigen::store {

class FileLog {
 public:
  explicit FileLog(const std::string& path);  // throws IoError

  // How long to try for the lock. A process needs the lock for microseconds only, unless it is stopped while it holds
  // it.
  static constexpr std::chrono::seconds kLockLimit{10};

  // A Reading or Writing holds the file lock while it lives. Their constructors throw IoError, or DataError when the
  // file is damaged or of another kind.
  class Reading {
   public:
    Reading(FileLog& log, const Deadline& deadline);
    ~Reading();
    Reading(const Reading&) = delete;  // a lock has one owner
    Reading& operator=(const Reading&) = delete;
    explicit operator bool() const { return locked_; }  // false if another process held the lock until the deadline

   private:
    FileLog& log_;
    bool locked_;
  };
  class Writing {
   public:
    explicit Writing(FileLog& log);  // throws Timeout when another process keeps the lock for longer than kLockLimit
    ~Writing();
    Writing(const Writing&) = delete;  // a lock has one owner
    Writing& operator=(const Writing&) = delete;
    void set(const std::string& key, const std::string& value);
    void erase(const std::string& key);

   private:
    FileLog& log_;
  };

  const Table& table() const { return table_; }  // the content of the file at the last Reading or Writing
  const std::string& path() const { return path_; }
  [[noreturn]] void throw_locked() const;

 private:
  bool lock(int operation, const Deadline& deadline);
  void unlock();
  void replay();
  bool replay_header(off_t size);
  bool replay_record(off_t size);
  std::string read_at(off_t offset, std::size_t size) const;
  void append(const std::string& bytes);
  [[noreturn]] void throw_io(const char* call, int error) const;
  [[noreturn]] void throw_damaged(const std::string& got) const;

  std::string path_;
  UniqueFd fd_;
  off_t end_ = 0;  // offset of the end of the last whole record that the table holds
  Table table_;
};

}  // namespace reigen::store
