#include "train/start/meaning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace reigen::train::meaning_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Values = std::vector<std::string>;

data::Meaning classes(Values values) { return {{.name = "classes", .values = std::move(values), .one = "class"}}; }

// The reported differences, if the data mean `now` and the checkpoint has `then`.
std::string said(const data::Meaning& now, const data::Meaning& then) {
  std::string all;
  for (const Difference& one : differences(now, to_text(then))) all += one.text + '\n';
  return all;
}

TEST(Meaning, ValuesComeBackFromTheirText) {
  const std::vector<std::string> values = {"a", "\\", "\xE9", "\\x41", "\xE6\x97\xA5", "\n", "\"", ""};
  const TextMap texts = to_text({{.name = "fact", .values = values}});
  EXPECT_EQ(values_of(texts.at("meaning.fact")), values);
}

TEST(Meaning, TheFirstDifferenceIsNamed) {
  EXPECT_EQ(said(classes({"ape", "cat"}), classes({"ape", "cat"})), "");
  EXPECT_EQ(said(classes({"ape", "cat", "elk"}), classes({"ape", "dog", "elk"})), "class 1 is 'cat', it was 'dog'\n");
  EXPECT_EQ(said(classes({"cat", "ape"}), classes({"ape", "cat"})),
            "class 0 is 'cat', it was 'ape' (classes has the same values in another order)\n");
  EXPECT_EQ(said(classes({"ape", "bee", "cat"}), classes({"ape", "cat"})),
            "class 1 is 'bee', it was 'cat' (classes has 3 values, it had 2)\n");
  EXPECT_EQ(said(classes({"ape"}), classes({"ape", "cat"})),
            "class 1 is not there, it was 'cat' (classes has 1 values, it had 2)\n");
}

TEST(Meaning, WhatIsOneValueIsToldAsOne) {
  const auto text = [](const char* hash) { return data::Meaning{{.name = "text", .values = {hash}}}; };
  EXPECT_EQ(said(text("xxh64 1"), text("xxh64 2")), "the text is 'xxh64 1', it was 'xxh64 2'\n");
}

TEST(Meaning, AFactOnOneSideCounts) {
  EXPECT_THAT(said({}, classes({"a", "b"})), HasSubstr("do not say their classes"));
  EXPECT_THAT(said(classes({"a", "b"}), {{.name = "text", .values = {"x"}}}),
              AllOf(HasSubstr("say their classes, which they did not"), HasSubstr("do not say their text")));
}

TEST(Meaning, OldCheckpointsSayNothing) {
  EXPECT_THAT(differences(classes({"a", "b"}), {{"data.samples", "7"}}), IsEmpty());
  EXPECT_FALSE(has_meaning({{"data.samples", "7"}, {"optim.lr", "1"}}));
  EXPECT_TRUE(has_meaning(to_text(classes({"a", "b"}))));
}

// Names of folders and texts may have any bytes, but a manifest is JSON.
TEST(Meaning, AnyBytesAreKeptApart) {
  const Values values = {"\n", "\xc3", "\xe9", "\xc3\xa9", "\\xE9", "\\", std::string(1, '\0')};
  const TextMap text = to_text(classes(values));
  EXPECT_EQ(nlohmann::json::parse(text.at("meaning.classes")).get<Values>(),
            (Values{"\n", "\\xC3", "\\xE9", "\xc3\xa9", "\\\\xE9", "\\\\", std::string(1, '\0')}));
  EXPECT_EQ(from_line(to_line(text)), text);
  EXPECT_EQ(said(classes({"\n", "\xe9"}), classes({"\n", "\xe8"})), "class 1 is '\\xE9', it was '\\xE8'\n");
  EXPECT_EQ(said(classes({"a", "\n"}), classes({"a", "\x1b"})), "class 1 is '\\n', it was '\\x1B'\n");
}

}  // namespace
}  // namespace reigen::train::meaning_test
