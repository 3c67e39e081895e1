#include "reigen/checkpoint/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest some_manifest() {
  Manifest m{.step = 12, .epoch = 1, .seed = -3, .world_size = 2, .options = {{"a", "\"b\""}}, .version = "1"};
  m.mesh = {{"dp_replicate", 2}, {"dp_shard", 3}};
  m.files = {{"model_rank_0.safetensors", 100 + 24, 100, 7}, {"model_rank_1.safetensors", 80 + 24, 80, 8}};
  m.groups["model"] = {{"w",
                        format::TensorType::kF32,
                        {3, 4},
                        {{layout::flat_part({3, 4}, 0, 6), 0, 100, 1}, {layout::flat_part({3, 4}, 6, 6), 1, 80, 2}}}};
  return m;
}

std::string refusal(const Manifest& manifest) {
  try {
    const std::string text = to_text(manifest);
    check_coverage(from_text(text, "here"), "here");
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("here"));
    return error.what();
  }
  return "no error";
}

TEST(Manifest, ComesBackFromItsText) {
  const std::string text = to_text(some_manifest());
  const Manifest m = from_text(text, "here");
  EXPECT_EQ(to_text(m), text);
  EXPECT_EQ(m.seed, -3);
  EXPECT_EQ(m.mesh.at(1).second, 3);
  EXPECT_EQ(m.find("model", "w")->pieces.at(1).at, 80U);
  EXPECT_EQ(m.find("model", "v"), nullptr);
  EXPECT_EQ(m.find("optimizer", "w"), nullptr);
  EXPECT_EQ(m.bytes(), 228U);
  EXPECT_EQ(refusal(m), "no error");
}

// A change of any byte is noticed, also of white space.
TEST(Manifest, EveryByteCounts) {
  const std::string text = to_text(some_manifest());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const int flip : {1, 4, 32, 64}) {
      std::string bad = text;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      EXPECT_ANY_THROW(from_text(bad, "here")) << i << " " << static_cast<int>(flip);
    }
    EXPECT_THROW(from_text(text.substr(0, i), "here"), DataError);
  }
  EXPECT_THROW(from_text(text + " ", "here"), DataError);
}

TEST(Manifest, WhatItSaysMustHoldTogether) {
  Manifest m = some_manifest();
  m.groups["model"][0].pieces[0].part.count = 5;
  EXPECT_THAT(refusal(m), HasSubstr("is of no tensor"));
  m = some_manifest();
  m.groups["model"][0].pieces[1].part.first = 5;
  EXPECT_THAT(refusal(m), HasSubstr("do not make it up"));
  m = some_manifest();
  m.groups["model"][0].pieces[1].file = 2;
  EXPECT_THAT(refusal(m), HasSubstr("file 2"));
  m = some_manifest();
  m.groups["model"][0].pieces[1].at = 84;
  EXPECT_THAT(refusal(m), HasSubstr("does not lie in"));
  m = some_manifest();
  m.groups["model"][0].shape = {INT64_MAX, 4};
  EXPECT_THAT(refusal(m), HasSubstr("too large"));
  m = some_manifest();
  m.groups["model"][0].shape = Shape(65, 1);
  EXPECT_THAT(refusal(m), HasSubstr("shape has 65 numbers"));
  m = some_manifest();
  m.groups["model"].push_back(m.groups["model"][0]);
  EXPECT_THAT(refusal(m), HasSubstr("comes twice"));
  m = some_manifest();
  m.files[1].name = m.files[0].name;
  EXPECT_THAT(refusal(m), HasSubstr("comes twice"));
  for (const char* name : {"../x", "", "/etc/passwd", ".hidden", "a/b"}) {
    m = some_manifest();
    m.files[0].name = name;
    EXPECT_THAT(refusal(m), HasSubstr("no name of a file")) << name;
  }
}

// A manifest has exactly one text. Other content is refused even if its hash is correct.
TEST(Manifest, WhatNoVersionWritesIsRefused) {
  const auto refusal_of = [](const std::function<void(nlohmann::json&)>& change) -> std::string {
    nlohmann::json content = nlohmann::json::parse(to_text(some_manifest()))["content"];
    change(content);
    const std::string plain = content.dump();
    const auto hash = format::hash_text(format::hash64(plain.data(), plain.size()));
    try {
      from_text(nlohmann::json{{"content", content}, {"xxh64", hash}}.dump(1) + '\n', "here");
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of([](nlohmann::json&) {}), "");
  const char* const kText = "holds what a manifest of its version does not";
  EXPECT_THAT(refusal_of([](auto& content) { content["format"] = "rehgen checkpoint"; }), HasSubstr(kText));
  EXPECT_THAT(refusal_of([](auto& content) { content["more"] = 1; }), HasSubstr(kText));
  EXPECT_THAT(refusal_of([](auto& content) { content["files"][0]["more"] = 1; }), HasSubstr(kText));
}

TEST(Manifest, AnotherVersionIsNotDamage) {
  std::string text = to_text(some_manifest());
  const std::string version = fmt::format("\"format_version\": {}", kFormatVersion);
  text.replace(text.find(version), version.size(), "\"format_version\": 9");
  try {
    from_text(text, "here");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kJobMismatch);
  }
}

TEST(Manifest, DeepNestingIsRefused) {
  EXPECT_THROW(from_text("{\"content\":" + std::string(100000, '['), "here"), DataError);
}

}  // namespace
}  // namespace reigen::checkpoint
