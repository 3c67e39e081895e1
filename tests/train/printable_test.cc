#include "train/run/printable.h"

#include <gtest/gtest.h>

namespace reigen::train::printable_test {
namespace {

TEST(PrintableText, KeepsCharactersAndReplacesControls) {
  EXPECT_EQ(printable("plain\ntext"), "plain\ntext");
  EXPECT_EQ(printable("na\xC3\xAFve \xE6\x97\xA5 \xF0\x9F\x99\x82"), "na\xC3\xAFve \xE6\x97\xA5 \xF0\x9F\x99\x82");
  EXPECT_EQ(printable("\x1b[31m\t\r\x7f"), "?[31m???");
  EXPECT_EQ(printable("a\xC2\x9B"
                      "b"),
            "a?b");  // a control character of Latin-1
  EXPECT_EQ(printable(std::string("\0", 1)), "?");
  EXPECT_EQ(printable("a\xFF\x80z\xC0\xAF"), "a??z??");
}

TEST(PrintableText, WaitsForTheRestOfACharacter) {
  PrintableText text;
  EXPECT_EQ(text.take("a\xF0\x9F"), "a");
  EXPECT_EQ(text.take("\x99"), "");
  EXPECT_EQ(text.take("\x82"
                      "b"),
            "\xF0\x9F\x99\x82"
            "b");
  EXPECT_EQ(text.take("\xE6"), "");
  EXPECT_EQ(text.take("x"), "?x");
  EXPECT_EQ(text.take("\xE6\x97"), "");
  EXPECT_EQ(text.finish(), "??");
  EXPECT_EQ(text.finish(), "");
}

}  // namespace
}  // namespace reigen::train::printable_test
