// The parsers of formats by themselves.
#include <gtest/gtest.h>

#include <limits>

#include "container/meta.h"
#include "container/sample.h"
#include "container/tar/npy.h"
#include "container/tfrecord/example.h"
#include "format/protobuf/protobuf.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

using format::protobuf::Message;

// Numbers that are not packed, as some writers store them, and one list in two parts.
TEST(Example, BothFormsOfNumbersAreRead) {
  Message floats, integers;
  floats.number(1, 1.5F);
  floats.number(1, -2.0F);
  std::string packed;
  format::protobuf::append_varint(packed, 300);
  format::protobuf::append_varint(packed, static_cast<std::uint64_t>(std::int64_t{-1}));
  integers.integer(1, 7);
  integers.bytes(1, packed);
  const auto numbers = floats_in(floats.to_bytes());
  ASSERT_TRUE(numbers);
  const float expected[] = {1.5F, -2.0F};
  EXPECT_EQ(text_of(*numbers), text_of(std::as_bytes(std::span(expected))));
  const std::int64_t whole[] = {7, 300, -1};
  EXPECT_EQ(text_of(*integers_in(integers.to_bytes())), text_of(std::as_bytes(std::span(whole))));
}

TEST(Example, WhatIsDamagedIsNoExample) {
  ExampleWriter writer;
  writer.bytes("a", bytes_of_text("value"));
  const std::string message = writer.message();
  ASSERT_EQ(parse_example(message)->size(), 1U);
  for (std::size_t cut = 1; cut < message.size(); ++cut) {
    const auto features = parse_example(std::string_view(message).substr(0, cut));
    EXPECT_TRUE(!features || features->empty()) << cut;
  }
  EXPECT_FALSE(
      floats_in(std::string("\x0a\x03"
                            "abc")));
  EXPECT_FALSE(integers_in(std::string("\x0a\x01\xff")));
}

TEST(Npy, EveryShapeAndTypeComesBack) {
  using format::TensorType;
  for (const TensorType type :
       {TensorType::kF64, TensorType::kF16, TensorType::kBool, TensorType::kU16, TensorType::kI8, TensorType::kC64}) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {3}, {2, 0}, {2, 3, 4}}) {
      std::string file = npy_head(type, shape);
      EXPECT_EQ(file.size() % 64, 0U);
      file.append(*format::bytes_of(type, shape), 'x');
      const auto npy = parse_npy(bytes_of_text(file));
      ASSERT_TRUE(npy);
      EXPECT_EQ(npy->type, type);
      EXPECT_EQ(npy->shape, shape);
      EXPECT_FALSE(parse_npy(bytes_of_text(file + "x")));
    }
  }
  const auto other = parse_npy(bytes_of_text(npy_head(TensorType::kBF16, {2}) + "abcd"));
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->type);  // numpy has no such type
  EXPECT_EQ(other->data.size(), 4U);
}

TEST(Meta, ComesBackAndEveryChangeIsSeen) {
  const Meta meta{
      .kind = ContainerKind::kTar,
      .count = 3,
      .fields = {{.name = "input", .kind = FieldKind::kPicture},
                 {.name = "x", .kind = FieldKind::kTensor, .type = format::TensorType::kI64, .shape = {-1, 2}}},
      .stored = {"jpg", "x.npy"},
      .classes = {"a", "\"\xc3\x84\""},
      .shards = {"a-000000.tar"},
      .hashes = std::numeric_limits<std::uint64_t>::max()};
  const std::string json = to_json(meta);
  const Meta back = parse_meta(json, "'f'");
  EXPECT_EQ(back.kind, meta.kind);
  EXPECT_EQ(back.fields, meta.fields);
  EXPECT_EQ(back.classes, meta.classes);
  EXPECT_EQ(back.shards, meta.shards);
  EXPECT_EQ(back.hashes, meta.hashes);
  for (std::size_t i = 0; i + 3 < json.size(); ++i) {  // but for the blanks at the end
    std::string changed = json;
    changed[i] ^= 1;
    EXPECT_THROW(parse_meta(changed, "'f'"), DataError) << i;
    EXPECT_THROW(parse_meta(json.substr(0, i), "'f'"), DataError) << i;
  }
}

TEST(Labels, AreTextInDecimal) {
  EXPECT_EQ(label_of_text(bytes_of_text(" -12\r\n"), "p"), -12);
  for (const char* text : {"", " ", "1.5", "0x3", "9223372036854775808", "1 2"}) {
    EXPECT_THROW(label_of_text(bytes_of_text(text), "p"), DataError) << text;
  }
}

}  // namespace
}  // namespace reigen::container
