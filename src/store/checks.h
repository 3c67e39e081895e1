// Checks that every kind of store makes (it refuses keys and values that are too long), and their errors.
#pragma once

#include <cstddef>
#include <string>

#include "reigen/base/bytes.h"
#include "reigen/base/deadline.h"

namespace reigen::store {

inline constexpr std::size_t kMaxKey = 64 * kKiB;
inline constexpr std::size_t kMaxValue = kMiB;

// Throw InvalidArgument, naming the key.
void check_key(const std::string& key);
void check_value(const std::string& key, const std::string& value);

// The key as it can be printed: in quotes, unprintable bytes as \x.., cut when it is long.
std::string quoted(const std::string& key);

// Measures how long one get() has waited, and makes the error when its deadline passes.
class KeyWait {
 public:
  KeyWait() : since_(Deadline::Clock::now()) {}
  [[noreturn]] void throw_timeout(const std::string& key, const std::string& where) const;

 private:
  Deadline::Clock::time_point since_;
};

}  // namespace reigen::store
