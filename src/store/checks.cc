#include "store/checks.h"

#include <fmt/format.h>

#include <chrono>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::store {

std::string quoted(const std::string& key) {
  constexpr std::size_t kShown = 120;
  std::string text = "'";
  for (const char c : key.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text + (key.size() > kShown ? "...'" : "'");
}

void check_key(const std::string& key) {
  if (key.size() <= kMaxKey) return;
  throw InvalidArgument(Report{.what = "a key of the store is too long: " + quoted(key),
                               .got = format_bytes(key.size()),
                               .expected = "at most " + format_bytes(kMaxKey)});
}

void check_value(const std::string& key, const std::string& value) {
  if (value.size() <= kMaxValue) return;
  throw InvalidArgument(Report{.what = "the value of key " + quoted(key) + " is too large for the store",
                               .got = format_bytes(value.size()),
                               .expected = "at most " + format_bytes(kMaxValue),
                               .fix = "send data through a communicator; the store is for addresses and counters"});
}

void KeyWait::throw_timeout(const std::string& key, const std::string& where) const {
  const std::chrono::duration<double> waited = Deadline::Clock::now() - since_;
  throw Timeout(Report{.what = fmt::format("key {} did not appear in {}", quoted(key), where),
                       .got = fmt::format("nothing for {:.1f} s", waited.count()),
                       .fix = "the rank that sets it has not started, has ended or is late: see its output"});
}

}  // namespace reigen::store
