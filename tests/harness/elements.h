// Compares many elements with one assertion. One assertion for each would take most of a test's time under a sanitizer.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace reigen::testing {

// Succeeds if data[i] is expected(i), or `expected`, for all i < count. Otherwise it reports the first wrong element.
template <typename Data, typename Expected>
::testing::AssertionResult elements_are(const Data& data, std::size_t count, const Expected& expected) {
  using Value = std::remove_cvref_t<decltype(data[0])>;
  for (std::size_t i = 0; i < count; ++i) {
    Value value;
    if constexpr (std::invocable<Expected, std::size_t>) {
      value = static_cast<Value>(expected(i));
    } else {
      value = static_cast<Value>(expected);
    }
    if (data[i] == value) continue;
    return ::testing::AssertionFailure() << "element " << i << " is " << ::testing::PrintToString(data[i])
                                         << ", expected " << ::testing::PrintToString(value);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace reigen::testing
