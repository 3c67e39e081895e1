#include "store/table.h"

#include <fmt/format.h>

#include "base/text.h"
#include "reigen/base/error.h"
#include "store/checks.h"

namespace reigen::store {

const std::string* Table::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::int64_t Table::sum(const std::string& key, std::int64_t delta) const {
  std::int64_t value = 0;
  if (const std::string* text = find(key)) {
    const auto number = base::parse<std::int64_t>(*text);
    if (!number) {
      throw InvalidArgument(Report{.what = "key " + quoted(key) + " of the store is not a counter",
                                   .got = quoted(*text),
                                   .expected = "a decimal number",
                                   .fix = "add() only to keys that add() made"});
    }
    value = *number;
  }
  std::int64_t result = 0;
  if (__builtin_add_overflow(value, delta, &result)) {
    throw InvalidArgument(Report{.what = "the counter in key " + quoted(key) + " of the store would overflow",
                                 .got = fmt::format("{} + {}", value, delta),
                                 .expected = "a sum that fits into 64 bits"});
  }
  return result;
}

bool Table::matches(const std::string& key, const std::optional<std::string>& expected) const {
  const std::string* value = find(key);
  return expected ? value != nullptr && *value == *expected : value == nullptr;
}

std::string Table::held(const std::string& key) const {
  const std::string* value = find(key);
  return value != nullptr ? *value : std::string();
}

}  // namespace reigen::store
