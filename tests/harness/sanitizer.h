// Whether a test runs under AddressSanitizer or ThreadSanitizer, and how often a test then repeats itself.
#pragma once

#include <algorithm>

namespace reigen::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The rounds of a test that repeats itself until a fault shows in a result. A sanitizer looks at each access of each
// round, also where the result is right. There each access takes up to fifty times as long, and a tenth of the rounds
// is enough.
constexpr int rounds(int whole) { return kSanitized ? std::max(3, whole / 10) : whole; }

}  // namespace reigen::testing
