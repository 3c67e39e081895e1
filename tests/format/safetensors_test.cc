#include "reigen/format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "format/memory_file.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::format::safetensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::content_of;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string file_of(const std::string& header, const std::string& data, std::uint64_t extra_length = 0) {
  const std::uint64_t length = header.size() + extra_length;
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string read_text(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry& tensor = file.at(name);
  std::string text(tensor.bytes, '?');
  file.read(tensor, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

TEST(Safetensors, RoundTripOfEveryType) {
  const std::string data = "0123456789abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQR";
  std::vector<TensorSource> tensors;
  std::vector<std::string> contents;
  contents.reserve(22);
  for (int i = 0; i < 22; ++i) {
    const auto type = static_cast<TensorType>(i);
    const std::vector<std::int64_t> shape =
        has_whole_bytes(type) ? std::vector<std::int64_t>{2, 3} : std::vector<std::int64_t>{2, 4};
    contents.push_back(data.substr(static_cast<std::size_t>(i % 10), *format::bytes_of(type, shape)));
    tensors.push_back(
        {.name = "t." + std::string(name_of(type)), .type = type, .shape = shape, .bytes = bytes_of(contents.back())});
    EXPECT_EQ(tensor_type_of(name_of(type)), type);
  }
  tensors.push_back(
      {.name = "scalar \"quoted\" \xC3\xA4", .type = TensorType::kF32, .shape = {}, .bytes = bytes_of(data).first(4)});
  tensors.push_back({.name = "empty", .type = TensorType::kI64, .shape = {5, 0, 7}, .bytes = {}});
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  const Metadata metadata = {{"format", "pt"}, {"line", "a\nb"}};
  const FileHash written = write_safetensors(path, tensors, metadata);

  const FileHash found = hash_file(path);
  EXPECT_EQ(written.bytes, found.bytes);
  EXPECT_EQ(written.hash, found.hash);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorSource& tensor : tensors) {
    const TensorEntry& entry = file.at(tensor.name);
    EXPECT_EQ(entry.type, tensor.type);
    EXPECT_EQ(entry.shape, tensor.shape);
    EXPECT_EQ(entry.offset % std::max(1u, bits_of(entry.type) / 8), 0u) << "aligned " << entry.name;
    const std::string text = read_text(file, tensor.name);
    EXPECT_TRUE(std::ranges::equal(bytes_of(text), tensor.bytes)) << tensor.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_THROW(file.at("absent"), DataError);
}

TEST(Safetensors, BytesOfPackedTypes) {
  EXPECT_EQ(format::bytes_of(TensorType::kF4, std::vector<std::int64_t>{3, 2}), 3u);
  EXPECT_EQ(format::bytes_of(TensorType::kF4, std::vector<std::int64_t>{3}), std::nullopt);
  EXPECT_EQ(format::bytes_of(TensorType::kF4, std::vector<std::int64_t>{}), std::nullopt);
  EXPECT_EQ(format::bytes_of(TensorType::kF4, std::vector<std::int64_t>{0}), 0u);
  EXPECT_EQ(format::bytes_of(TensorType::kF6E2M3, std::vector<std::int64_t>{4, 3}), 9u);
  EXPECT_EQ(format::bytes_of(TensorType::kF6E3M2, std::vector<std::int64_t>{2}), std::nullopt);
  EXPECT_EQ(format::bytes_of(TensorType::kF32, std::vector<std::int64_t>{1LL << 60, 2}), std::nullopt);
  EXPECT_EQ(format::bytes_of(TensorType::kF32, std::vector<std::int64_t>{-1}), std::nullopt);
  EXPECT_THROW(size_of(TensorType::kF4), InvalidArgument);
}

// This reader accepts all files that the reference reader accepts.
TEST(Safetensors, OddFilesThatAreWhole) {
  const tests::TemporaryFolder folder;
  const auto read = [&](const std::string& header, const std::string& data) {
    const SafetensorsFile file(folder.write("x.safetensors", file_of(header, data)));
    std::string all;
    for (const auto& tensor : file.tensors()) all += tensor.name + "=" + read_text(file, tensor.name) + ";";
    return all;
  };
  const std::string one = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_EQ(read(R"({"__metadata__":null,)" + one, "xy"), "a=xy;");
  EXPECT_EQ(read(R"({"__metadata__":{},)" + one, "xy"), "a=xy;");
  EXPECT_EQ(read("{" + one + "\n\t  ", "xy"), "a=xy;");
  EXPECT_EQ(read(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                 R"("a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                 "12345"),
            "b=1;a=2345;")
      << "not aligned";
  EXPECT_EQ(read(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", "xyz"), "a=xyz;");
  EXPECT_EQ(read(R"({"a":{"dtype":"C64","shape":[],"data_offsets":[0,8]}})", "12345678"), "a=12345678;");
  EXPECT_EQ(read(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", ""), "a=;");
}

TEST(Safetensors, SameTensorsInAnyOrderGiveTheSameBytes) {
  const std::string data(64, 'x');
  std::vector<TensorSource> tensors = {{"b", TensorType::kF32, {4}, bytes_of(data).first(16)},
                                       {"a", TensorType::kF32, {2, 2}, bytes_of(data).first(16)},
                                       {"c", TensorType::kF64, {1}, bytes_of(data).first(8)}};
  const tests::TemporaryFolder folder;
  write_safetensors(folder.path() / "1", tensors);
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(folder.path() / "2", tensors);
  EXPECT_EQ(content_of(folder.path() / "1"), content_of(folder.path() / "2"));
  const SafetensorsFile file(folder.path() / "1");
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("c", "a", "b"));
}

TEST(Safetensors, ExactBytes) {
  const tests::TemporaryFolder folder;
  const std::string data("\x01\x02", 2);
  write_safetensors(folder.path() / "x", std::vector<TensorSource>{{"a", TensorType::kU8, {2}, bytes_of(data)}});
  EXPECT_EQ(content_of(folder.path() / "x"),
            file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   )", data));
  write_safetensors(folder.path() / "none", {});
  EXPECT_EQ(content_of(folder.path() / "none"), file_of("{}      ", ""));
  EXPECT_TRUE(SafetensorsFile(folder.path() / "none").tensors().empty());
}

TEST(Safetensors, PartsOfATensor) {
  const tests::TemporaryFolder folder;
  const std::string data = "0123456789";
  const auto path = folder.path() / "x";
  write_safetensors(path, std::vector<TensorSource>{{"a", TensorType::kU8, {10}, bytes_of(data)}});
  const SafetensorsFile file(path);
  std::string part(3, '?');
  const auto into = std::as_writable_bytes(std::span(part.data(), part.size()));
  file.read(file.at("a"), into, 7);
  EXPECT_EQ(part, "789");
  EXPECT_THROW(file.read(file.at("a"), into, 8), InvalidArgument);
  EXPECT_THROW(file.read(file.at("a"), into, ~std::uint64_t{0}), InvalidArgument);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(file.read(file.at("a"), into, 7), DataError);
}

TEST(Safetensors, SourcesThatDoNotFitAreRefused) {
  const tests::TemporaryFolder folder;
  const std::string data(16, 'x');
  const auto write = [&](const std::vector<TensorSource>& tensors, const Metadata& metadata = {}) {
    write_safetensors(folder.path() / "x", tensors, metadata);
  };
  const auto bytes = bytes_of(data);
  EXPECT_THROW(write({{"a", TensorType::kF32, {3}, bytes}}), InvalidArgument);
  EXPECT_THROW(write({{"a", TensorType::kF32, {-4}, bytes}}), InvalidArgument);
  EXPECT_THROW(write({{"a", TensorType::kF32, {1LL << 62, 1LL << 62, 4}, bytes}}), InvalidArgument);
  EXPECT_THROW(write({{"a", TensorType::kF32, {4}, bytes}, {"a", TensorType::kF32, {4}, bytes}}), InvalidArgument);
  EXPECT_THROW(write({{"__metadata__", TensorType::kF32, {4}, bytes}}), InvalidArgument);
  EXPECT_THROW(write({{"\xFF", TensorType::kF32, {4}, bytes}}), InvalidArgument);
  EXPECT_THROW(write({}, {{"k", "\xFF"}}), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

struct Wrong {
  const char* name;
  std::string content;
  const char* text;  // a part of the message
};

std::vector<Wrong> wrong_headers() {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  const auto entry = [](const std::string& text) { return "{\"a\":" + text + "}"; };
  const std::string data(8, 'x');
  return {
      {"length", file_of("{}", "", 1), "header length at byte 0"},
      {"length over the cap", file_of(one, data, 200'000'000), "at most 100000000"},
      {"length of all ones", std::string(8, '\xFF') + one, "18446744073709551615"},
      {"no object", file_of("[1]     ", ""), "expected: '{'"},
      {"space before", file_of(" {}", ""), "expected: '{'"},
      {"empty header", file_of("", ""), "expected: '{'"},
      {"broken json", file_of("{\"a\":", ""), "no JSON at byte"},
      {"garbage after", file_of("{}x", ""), "no JSON at byte 11"},
      {"zero byte after", file_of(std::string("{}\0", 3), ""), "no JSON"},
      {"bad utf-8", file_of("{\"\xFF\":1}", ""), "no JSON"},
      {"number for a tensor", file_of("{\"a\":1}", ""), "entry 'a'"},
      {"text for a tensor", file_of("{\"a\":\"x\"}", ""), "an object"},
      {"array for a tensor", file_of("{\"a\":[]}", ""), "an array"},
      {"null for a tensor", file_of("{\"a\":null}", ""), "null"},
      {"unknown dtype", file_of(entry(R"({"dtype":"F99","shape":[2],"data_offsets":[0,8]})"), data), "dtype 'F99'"},
      {"dtype a number", file_of(entry(R"({"dtype":1,"shape":[2],"data_offsets":[0,8]})"), data), "a string"},
      {"dtype an array", file_of(entry(R"({"dtype":["F32"],"shape":[2],"data_offsets":[0,8]})"), data), "an array"},
      {"shape a number", file_of(entry(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), data), "2 for 'shape'"},
      {"negative", file_of(entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), data), "-2 in 'shape'"},
      {"fraction", file_of(entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), data), "2.0 in 'shape'"},
      {"nested shape", file_of(entry(R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"), data),
       "an array in 'shape'"},
      {"object in shape", file_of(entry(R"({"dtype":"F32","shape":[{}],"data_offsets":[0,8]})"), data), "an object"},
      {"object in entry", file_of(entry(R"({"dtype":{},"shape":[2],"data_offsets":[0,8]})"), data), "an object"},
      {"no shape", file_of(entry(R"({"dtype":"F32","data_offsets":[0,8]})"), data), "without all of its keys"},
      {"unknown key", file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), data), "key 'x'"},
      {"key twice", file_of(entry(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), data),
       "'dtype' twice"},
      {"one offset", file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), data), "data_offsets [0]"},
      {"offsets reversed", file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), data), "begin <= end"},
      {"offset too large",
       file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})"), data),
       "18446744073709551615"},
      {"offset at the limit",
       file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775807]})"), data),
       "offset"},
      {"shape does not fit", file_of(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), data), "12 bytes"},
      {"shape overflows to the right size",
       file_of(entry(R"({"dtype":"F32","shape":[4611686018427387904,4,2],"data_offsets":[0,0]})"), ""),
       "more than 2^63"},
      {"overlap", file_of(two("[0,4]", "[2,6]"), data.substr(2)), "'b' overlaps"},
      {"the same bytes", file_of(two("[0,4]", "[0,4]"), data.substr(4)), "overlaps"},
      {"hole", file_of(two("[0,4]", "[5,9]"), data + "x"), "'b' leaves a hole"},
      {"hole at the start", file_of(two("[4,8]", "[8,12]"), data + "xxxx"), "'a' leaves a hole"},
      {"truncated", file_of(one, data.substr(1)), "truncated: tensor 'a'"},
      {"goes on", file_of(one, data + "x"), "goes on after the last tensor"},
      {"name twice",
       file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
               R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
               data),
       "'a'"},
      {"deep", file_of("{\"a\":" + std::string(100'000, '['), ""), "an array"},
  };
}

std::vector<Wrong> wrong_metadata() {
  const auto entry = [](const std::string& text) { return "{\"a\":" + text + "}"; };
  const std::string data(8, 'x');
  return {
      {"metadata a number", file_of(R"({"__metadata__":{"k":1}})", ""), "1 for 'k'"},
      {"metadata key twice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "twice"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice"},
      {"metadata null twice", file_of(R"({"__metadata__":null,"__metadata__":{}})", ""), "twice"},
      {"null in the metadata", file_of(R"({"__metadata__":{"k":null}})", ""), "null for 'k'"},
      {"null for a shape", file_of(entry(R"({"dtype":"F32","shape":null,"data_offsets":[0,8]})"), data), "null"},
      {"packed elements that end in a byte",
       file_of(entry(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})"), data.substr(6)), "fill whole bytes"},
      {"metadata an array", file_of(R"({"__metadata__":[]})", ""), "an array"},
      {"metadata nested", file_of(R"({"__metadata__":{"k":{}}})", ""), "an object"},
  };
}

TEST(Safetensors, WrongFilesAreNamed) {
  const tests::TemporaryFolder folder;
  std::vector<Wrong> cases = wrong_headers();
  for (const Wrong& wrong : wrong_metadata()) cases.push_back(wrong);
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.name);
    const auto path = folder.write("wrong.safetensors", wrong.content);
    try {
      const SafetensorsFile file(path);
      ADD_FAILURE() << "read without complaint";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      EXPECT_THAT(error.what(), HasSubstr(wrong.text));
    }
  }
}

// Any byte of the header gets some other values, or the file is cut at any length. The result must be a DataError or a
// whole file.
TEST(Safetensors, DamagedAnywhere) {
  const tests::TemporaryFolder folder;
  const std::string data(12, 'x');
  write_safetensors(folder.path() / "good",
                    std::vector<TensorSource>{{"a", TensorType::kF32, {2}, bytes_of(data).first(8)},
                                              {"b", TensorType::kU8, {4}, bytes_of(data).first(4)}},
                    {{"k", "v"}});
  const std::string good = content_of(folder.path() / "good");
  const auto check = [&](const std::string& content) {
    const tests::MemoryFile memory(content.data(), content.size());
    try {
      const SafetensorsFile file(memory.path());
      std::uint64_t total = 0;
      for (const auto& tensor : file.tensors()) total += read_text(file, tensor.name).size();
      EXPECT_EQ(total, 12u);
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  EXPECT_TRUE(check(good));
  for (std::size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(check(good.substr(0, length))) << length;
  for (std::size_t at = 0; at < good.size() - data.size(); ++at) {
    for (const char wrong : {'\0', '\xFF', '"', '{', '}', '9', ' '}) {
      std::string damaged = good;
      damaged[at] = wrong;
      check(damaged);
    }
  }
}

TEST(Safetensors, MissingFile) {
  const tests::TemporaryFolder folder;
  try {
    const SafetensorsFile file(folder.path() / "absent");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
  }
}

}  // namespace
}  // namespace reigen::format::safetensors_test
