// Checks that every kind of store makes: whether a key or a value is too long. Also the errors of these checks.
#pragma once

#include <cstddef>
#include <string>

#include "reigen/base/bytes.h"
#include "reigen/base/deadline.h"

namespace reigen::store {

inline constexpr std::size_t kMaxKey = 64 * kKiB;
inline constexpr std::size_t kMaxValue = kMiB;

// check_key() throws InvalidArgument if the key is too long, and check_value() if the value is too long. The error
// names the key.
void check_key(const std::string& key);
void check_value(const std::string& key, const std::string& value);

// The key for an error message: in quotes, with unprintable bytes as \x.., and cut if it is long.
std::string quoted(const std::string& key);

// Measures how long one get() has waited, and throws the error when the deadline of this get() passes.
class KeyWait {
 public:
  KeyWait() : since_(Deadline::Clock::now()) {}
  [[noreturn]] void throw_timeout(const std::string& key, const std::string& where) const;

 private:
  Deadline::Clock::time_point since_;
};

}  // namespace reigen::store
