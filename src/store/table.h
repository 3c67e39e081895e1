// The keys and values themselves, with the meaning of every operation: what the memory store guards with a mutex, the
// file store replays from its log and the TCP server serves. Not safe between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace reigen::store {

class Table {
 public:
  const std::string* find(const std::string& key) const;  // nullptr: missing
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  bool erase(const std::string& key) { return values_.erase(key) > 0; }

  // The counter's value after the addition, which is not stored. Throws InvalidArgument if the key holds no counter.
  std::int64_t sum(const std::string& key, std::int64_t delta) const;

  // True if compare_and_set would set the key.
  bool matches(const std::string& key, const std::optional<std::string>& expected) const;

  // What the key holds, empty if it is missing: the answer of compare_and_set.
  std::string held(const std::string& key) const;

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace reigen::store
