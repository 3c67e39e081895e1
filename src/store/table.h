// The keys and values of a store, and the effect of every operation on them. The memory store guards a Table with a
// mutex, the file store fills one from its log, and the TCP server serves one. Not safe between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace reigen::store {

class Table {
 public:
  const std::string* find(const std::string& key) const;  // nullptr if the key is missing
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  bool erase(const std::string& key) { return values_.erase(key) > 0; }

  // The counter's value after the addition; the caller stores it. Throws InvalidArgument if the key holds no counter.
  std::int64_t sum(const std::string& key, std::int64_t delta) const;

  // True if compare_and_set would set the key: its value is `expected`, or the key is missing and `expected` is
  // nullopt.
  bool matches(const std::string& key, const std::optional<std::string>& expected) const;

  // The value of the key, empty if the key is missing; this is what compare_and_set returns.
  std::string held(const std::string& key) const;

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace reigen::store
