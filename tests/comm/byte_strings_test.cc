// Bytes of any length.
#include "reigen/comm/byte_strings.h"

#include <gmock/gmock.h>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

// Rank r has 1000·r bytes, some of which are zero.
std::string bytes_of(int rank) {
  std::string bytes(1000 * static_cast<std::size_t>(rank), static_cast<char>(rank));
  for (std::size_t i = 0; i < bytes.size(); i += 7) bytes[i] = '\0';
  return bytes;
}

TEST(ByteStrings, OfTheRootGoToAll) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks({.ranks = ranks}, [](Rank& r) {
      for (int root = 0; root < r.size(); ++root) {
        EXPECT_EQ(broadcast_bytes(bytes_of(r.rank()), root, r.world()), bytes_of(root));
      }
      EXPECT_THROW(broadcast_bytes("x", r.size(), r.world()), InvalidArgument);
    });
  }
}

TEST(ByteStrings, OfAllGoToAll) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_ranks({.ranks = ranks}, [](Rank& r) {
      std::vector<std::string> expected;
      for (int q = 0; q < r.size(); ++q) expected.push_back(bytes_of(q));
      EXPECT_EQ(all_gather_bytes(bytes_of(r.rank()), r.world()), expected);
      EXPECT_EQ(all_gather_bytes("", r.world()), std::vector<std::string>(static_cast<std::size_t>(r.size())));
    });
  }
}

}  // namespace
}  // namespace reigen::testing
