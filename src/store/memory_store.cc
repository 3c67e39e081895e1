#include <condition_variable>
#include <mutex>

#include "reigen/store/store.h"
#include "store/checks.h"
#include "store/table.h"

namespace reigen::store {

namespace {

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    check_key(key);
    check_value(key, value);
    const std::lock_guard lock(mutex_);
    put(key, value);
  }

  std::string get(const std::string& key, const Deadline& deadline) override {
    check_key(key);
    const KeyWait wait;
    std::unique_lock lock(mutex_);
    const auto there = [&] { return table_.find(key) != nullptr; };
    if (deadline.is_never()) {
      changed_.wait(lock, there);
    } else if (!changed_.wait_until(lock, deadline.when(), there)) {
      wait.throw_timeout(key, "the in-process store");
    }
    return *table_.find(key);
  }

  std::optional<std::string> try_get(const std::string& key) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    const std::string* value = table_.find(key);
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    const std::int64_t sum = table_.sum(key, delta);
    put(key, std::to_string(sum));
    return sum;
  }

  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    check_key(key);
    check_value(key, desired);
    const std::lock_guard lock(mutex_);
    if (table_.matches(key, expected)) put(key, desired);
    return table_.held(key);
  }

  bool erase(const std::string& key) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    return table_.erase(key);
  }

 private:
  void put(const std::string& key, std::string value) {
    table_.set(key, std::move(value));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Table table_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace reigen::store
