#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "reigen/store/store.h"
#include "store/checks.h"
#include "store/file_log.h"

namespace reigen::store {

namespace {

using namespace std::chrono_literals;

class FileStore final : public Store {
 public:
  explicit FileStore(const std::string& path) : log_(path) {
    const std::lock_guard lock(mutex_);
    const FileLog::Writing writing(log_);  // refuses an unusable path now, not at the first key
  }

  void set(const std::string& key, const std::string& value) override {
    check_key(key);
    check_value(key, value);
    const std::lock_guard lock(mutex_);
    FileLog::Writing(log_).set(key, value);
  }

  std::string get(const std::string& key, const Deadline& deadline) override {
    check_key(key);
    const KeyWait wait;
    // File systems shared between machines do not notify of changes, so this loop polls the file, less and less often.
    for (std::chrono::nanoseconds pause = 1ms;; pause = std::min<std::chrono::nanoseconds>(2 * pause, 20ms)) {
      if (auto value = read(key)) return *std::move(value);
      if (deadline.expired()) wait.throw_timeout(key, "the store's file '" + log_.path() + "'");
      std::this_thread::sleep_for(deadline.remaining(pause));
    }
  }

  std::optional<std::string> try_get(const std::string& key) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    const FileLog::Reading reading(log_, Deadline::after(FileLog::kLockLimit));
    if (!reading) log_.throw_locked();
    return lookup(key);
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    FileLog::Writing writing(log_);
    const std::int64_t sum = log_.table().sum(key, delta);
    writing.set(key, std::to_string(sum));
    return sum;
  }

  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    check_key(key);
    check_value(key, desired);
    const std::lock_guard lock(mutex_);
    FileLog::Writing writing(log_);
    if (log_.table().matches(key, expected)) writing.set(key, desired);
    return log_.table().held(key);
  }

  bool erase(const std::string& key) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    FileLog::Writing writing(log_);
    if (log_.table().find(key) == nullptr) return false;
    writing.erase(key);
    return true;
  }

 private:
  // Looks for the key once, even if the caller's deadline has passed, because the file may already contain the key.
  // Also returns nullopt if another process keeps the lock for a second; the caller then looks again.
  std::optional<std::string> read(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const FileLog::Reading reading(log_, Deadline::after(1s));
    return reading ? lookup(key) : std::nullopt;
  }

  std::optional<std::string> lookup(const std::string& key) const {
    const std::string* value = log_.table().find(key);
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }

  std::mutex mutex_;
  FileLog log_;
};

}  // namespace

std::shared_ptr<Store> make_file_store(const std::string& path) { return std::make_shared<FileStore>(path); }

}  // namespace reigen::store
