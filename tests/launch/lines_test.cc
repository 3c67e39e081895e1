#include "launch/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace reigen::launch {
namespace {

using testing::ElementsAre;

// The result as "line:text", "part:text", "progress:text".
std::vector<std::string> cut(const std::vector<std::string>& feeds) {
  std::vector<std::string> pieces;
  const auto sink = [&](Piece piece, std::string_view text) {
    const char* kind = piece == Piece::kLine ? "line:" : piece == Piece::kPart ? "part:" : "progress:";
    pieces.push_back(kind + std::string(text));
  };
  LineSplitter splitter;
  for (const std::string& bytes : feeds) splitter.feed(bytes, sink);
  splitter.finish(sink);
  return pieces;
}

TEST(LineSplitter, WholeLinesWhateverThePacketsAre) {
  EXPECT_THAT(cut({"one\ntwo\n"}), ElementsAre("line:one", "line:two"));
  EXPECT_THAT(cut({"o", "ne", "\nt", "wo\n"}), ElementsAre("line:one", "line:two"));
  EXPECT_THAT(cut({"\n\n"}), ElementsAre("line:", "line:"));
}

TEST(LineSplitter, TheLastLineNeedsNoEnd) {
  EXPECT_THAT(cut({"one\ntwo"}), ElementsAre("line:one", "line:two"));
  EXPECT_THAT(cut({}), ElementsAre());
}

TEST(LineSplitter, AReturnEndsAProgressLine) {
  EXPECT_THAT(cut({"10%\r20%\rdone\n"}), ElementsAre("progress:10%", "progress:20%", "line:done"));
}

TEST(LineSplitter, AReturnInFrontIsAProgressLineToo) {
  EXPECT_THAT(cut({"\r10%", "\r20%", "\n"}), ElementsAre("progress:10%", "line:20%"));
}

TEST(LineSplitter, TheLastStateOfAProgressLineIsKept) {
  EXPECT_THAT(cut({"10%\r20%\r"}), ElementsAre("progress:10%", "progress:20%", "line:20%"));
}

TEST(LineSplitter, ReturnAndNewlineEndALine) {
  EXPECT_THAT(cut({"one\r\ntwo\r", "\n"}), ElementsAre("progress:one", "line:one", "progress:two", "line:two"));
  EXPECT_THAT(cut({"one\r\r\n"}), ElementsAre("progress:one", "line:one"));
}

TEST(LineSplitter, LongLinesAreCut) {
  const std::string cap(LineSplitter::kMaxLine, 'x');
  EXPECT_THAT(cut({cap + "\n"}), ElementsAre("line:" + cap));
  EXPECT_THAT(cut({cap + "yz\n"}), ElementsAre("part:" + cap, "line:yz"));
  EXPECT_THAT(cut({cap, cap, "\nend\n"}), ElementsAre("part:" + cap, "line:" + cap, "line:end"));
}

TEST(LineSplitter, OtherBytesPassUnchanged) {
  const std::string odd("\0\x1b[31m\xff\t", 8);
  EXPECT_THAT(cut({odd + "\n"}), ElementsAre("line:" + odd));
}

}  // namespace
}  // namespace reigen::launch
