#include "reigen/format/pt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "format/memory_file.h"
#include "format/pt_writer.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::format::pt_file_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::checkpoint;
using tests::little_endian;
using tests::MemoryFile;
namespace pickled = tests::pickled;

std::string bytes_of(const PtFile& file, const PtTensor& tensor) {
  std::string bytes(tensor.bytes, '?');
  file.read(tensor, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  return bytes;
}

std::vector<std::string> names_of(const PtFile& file) {
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

std::string text_of(const PtFile& file, const std::string& name) {
  for (const auto& value : file.values()) {
    if (value.name == name) return value.text;
  }
  return "absent";
}

// The numbers 0, 1, 2 ... as elements of two bytes.
std::string counting(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += little_endian(static_cast<std::uint16_t>(i));
  return text;
}
std::string elements(const std::vector<std::uint16_t>& values) {
  std::string text;
  for (const auto value : values) text += little_endian(value);
  return text;
}

std::string short_tensor(std::int64_t in_storage, const std::vector<std::int64_t>& shape,
                         const std::vector<std::int64_t>& strides, std::int64_t first = 0) {
  return pickled::tensor(pickled::storage("ShortStorage", "0", in_storage), shape, strides, first);
}

// Everything in a file, as one text.
std::string everything_in(const PtFile& file) {
  std::string all;
  for (const auto& tensor : file.tensors()) {
    all += tensor.name + "|" + std::string(name_of(tensor.type));
    for (const auto dim : tensor.shape) all += "|" + std::to_string(dim);
    all += "=" + bytes_of(file, tensor) + "\n";
  }
  for (const auto& value : file.values()) all += value.name + "=" + value.text + "\n";
  for (const auto& tensor : file.unreadable()) all += tensor.name + "!" + tensor.reason + "\n";
  for (const auto& object : file.objects()) all += object.name + "?" + object.type + "\n";
  return all;
}

TEST(PtFile, EveryTypeOfPyTorch) {
  const std::vector<std::pair<std::string, TensorType>> types = {{"DoubleStorage", TensorType::kF64},
                                                                 {"FloatStorage", TensorType::kF32},
                                                                 {"HalfStorage", TensorType::kF16},
                                                                 {"BFloat16Storage", TensorType::kBF16},
                                                                 {"LongStorage", TensorType::kI64},
                                                                 {"IntStorage", TensorType::kI32},
                                                                 {"ShortStorage", TensorType::kI16},
                                                                 {"CharStorage", TensorType::kI8},
                                                                 {"ByteStorage", TensorType::kU8},
                                                                 {"BoolStorage", TensorType::kBool},
                                                                 {"UntypedStorage", TensorType::kU8},
                                                                 {"ComplexFloatStorage", TensorType::kC64},
                                                                 {"UInt16Storage", TensorType::kU16},
                                                                 {"UInt32Storage", TensorType::kU32},
                                                                 {"UInt64Storage", TensorType::kU64},
                                                                 {"Float8_e4m3fnStorage", TensorType::kF8E4M3},
                                                                 {"Float8_e5m2Storage", TensorType::kF8E5M2},
                                                                 {"Float8_e4m3fnuzStorage", TensorType::kF8E4M3Fnuz},
                                                                 {"Float8_e5m2fnuzStorage", TensorType::kF8E5M2Fnuz},
                                                                 {"Float8_e8m0fnuStorage", TensorType::kF8E8M0}};
  std::vector<std::pair<std::string, std::string>> items;
  std::vector<std::string> storages;
  for (std::size_t i = 0; i < types.size(); ++i) {
    storages.push_back(counting(40).substr(i, 6 * size_of(types[i].second)));
    items.emplace_back(types[i].first,
                       pickled::tensor(pickled::storage(types[i].first, std::to_string(i), 6), {2, 3}, {3, 1}));
  }
  const std::string content = checkpoint(pickled::whole(pickled::ordered(items)), storages);
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  ASSERT_EQ(file.tensors().size(), types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const PtTensor& tensor = file.at(types[i].first);
    EXPECT_EQ(&tensor, &file.tensors()[i]) << "in the file's order";
    EXPECT_EQ(tensor.type, types[i].second);
    EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
    EXPECT_THAT(tensor.strides, ElementsAre(3, 1));
    EXPECT_EQ(content.substr(tensor.storage_offset, tensor.storage_bytes), storages[i]);
    EXPECT_EQ(bytes_of(file, tensor), storages[i]) << tensor.name;
  }
  EXPECT_THAT(file.values(), IsEmpty());
  EXPECT_THAT(file.unreadable(), IsEmpty());
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_THROW(file.at("absent"), DataError);
  file.verify();
}

TEST(PtFile, NamesComeFromTheContainers) {
  const std::string tensor = short_tensor(4, {4}, {1});
  const std::string state = "}(" + pickled::number(0) + pickled::dict({{"exp_avg", tensor}}) + pickled::number(1) +
                            pickled::dict({{"exp_avg", tensor}}) + "u";
  const std::string root = pickled::dict({{"model", pickled::ordered({{"conv1.weight", pickled::parameter(tensor)}})},
                                          {"optimizer", pickled::dict({{"state", state}})},
                                          {"pair", pickled::tuple({tensor, pickled::list({tensor})})},
                                          {"empty", pickled::list({})},
                                          {"\xC3\xA4", tensor}});
  const std::string content = checkpoint(pickled::whole(root), {counting(4)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  EXPECT_THAT(names_of(file), ElementsAre("model.conv1.weight", "optimizer.state.0.exp_avg",
                                          "optimizer.state.1.exp_avg", "pair.0", "pair.1.0", "\xC3\xA4"));
  for (const auto& entry : file.tensors()) EXPECT_EQ(entry.storage, file.tensors()[0].storage);
}

TEST(PtFile, OneTensorOrValueAlone) {
  const std::string one = checkpoint(pickled::whole(short_tensor(4, {}, {}, 2)), {counting(4)});
  const MemoryFile tensor(one.data(), one.size());
  EXPECT_EQ(bytes_of(PtFile(tensor.path()), PtFile(tensor.path()).at("tensor")), elements({2}));
  const std::string two = checkpoint(pickled::whole(pickled::storage("ShortStorage", "0", 4)), {counting(4)});
  const MemoryFile storage(two.data(), two.size());
  EXPECT_EQ(bytes_of(PtFile(storage.path()), PtFile(storage.path()).at("tensor")), counting(4));
  const std::string three = checkpoint(pickled::whole(pickled::number(7)));
  const MemoryFile value(three.data(), three.size());
  EXPECT_EQ(text_of(PtFile(value.path()), "value"), "7");
}

TEST(PtFile, ValuesAsPythonPrintsThem) {
  const std::string root = pickled::dict({
      {"epoch", pickled::number(-3)},
      {"byte", "K\xFF"},
      {"short", std::string("M\x00\x80", 3)},
      {"long", std::string("\x8A\x05\x00\x00\x00\x00\x80", 7)},
      {"zero", std::string("\x8A\x00", 2)},
      {"seed", "\x8A\x09" + std::string(8, '\xFF') + '\0'},
      {"huge", "\x8A\x0A" + std::string(10, '\x11')},
      {"lr", pickled::real(0.001)},
      {"tiny", pickled::real(1e-8)},
      {"one", pickled::real(1)},
      {"name", pickled::text("conv net")},
      {"yes", "\x88"},
      {"no", "\x89"},
      {"none", "N"},
      {"type", pickled::global("torch", "float8_e5m2")},
      {"size", pickled::call(pickled::global("torch", "Size"), {pickled::tuple({pickled::number(5)})})},
      {"device", pickled::call(pickled::global("torch", "device"), {pickled::text("cuda"), pickled::number(1)})},
      {"bytes",
       pickled::call(pickled::global("_codecs", "encode"), {pickled::text("\xC3\xA4y"), pickled::text("latin1")})},
      {"set", pickled::call(pickled::global("__builtin__", "set"), {pickled::list({pickled::number(4)})})},
      {"counter", pickled::call(pickled::global("collections", "Counter"), {pickled::dict({{"x", "K\x02"}})})},
      {"default",
       pickled::call(pickled::global("collections", "defaultdict"), {pickled::global("__builtin__", "list")})},
  });
  const std::string content = checkpoint(pickled::whole(root));
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  const std::vector<std::pair<std::string, std::string>> expected = {{"epoch", "-3"},
                                                                     {"byte", "255"},
                                                                     {"short", "32768"},
                                                                     {"long", "-549755813888"},
                                                                     {"zero", "0"},
                                                                     {"seed", "18446744073709551615"},
                                                                     {"huge", "an integer of 10 bytes"},
                                                                     {"lr", "0.001"},
                                                                     {"tiny", "1e-08"},
                                                                     {"one", "1.0"},
                                                                     {"name", "conv net"},
                                                                     {"yes", "True"},
                                                                     {"no", "False"},
                                                                     {"none", "None"},
                                                                     {"type", "torch.float8_e5m2"},
                                                                     {"size.0", "5"},
                                                                     {"device", "cuda:1"},
                                                                     {"bytes", "2 bytes"},
                                                                     {"set.0", "4"},
                                                                     {"counter.x", "2"}};
  EXPECT_EQ(file.values().size(), expected.size());
  for (const auto& [name, text] : expected) EXPECT_EQ(text_of(file, name), text) << name;
}

TEST(PtFile, ViewsAreReadInRowMajorOrder) {
  struct View {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    std::int64_t first;
    std::vector<std::uint16_t> expected;
  };
  const std::vector<View> views = {
      {"plain", {2, 3}, {3, 1}, 0, {0, 1, 2, 3, 4, 5}},
      {"transposed", {3, 2}, {1, 3}, 0, {0, 3, 1, 4, 2, 5}},
      {"columns", {2, 2}, {4, 1}, 1, {1, 2, 5, 6}},
      {"every other", {3}, {4}, 2, {2, 6, 10}},
      {"expanded", {2, 3}, {0, 1}, 4, {4, 5, 6, 4, 5, 6}},
      {"one for all", {2, 2}, {0, 0}, 7, {7, 7, 7, 7}},
      {"inner expanded", {2, 3}, {1, 0}, 8, {8, 8, 8, 9, 9, 9}},
      {"windows", {3, 2}, {1, 1}, 0, {0, 1, 1, 2, 2, 3}},
      {"ones", {1, 3, 1}, {99, 1, 1 << 30}, 9, {9, 10, 11}},
      {"last", {}, {}, 11, {11}},
      {"empty", {3, 0, 2}, {2, 2, 1}, 0, {}},
      {"empty at the end", {0}, {1}, 12, {}},
      {"channels last", {1, 2, 2, 3}, {12, 1, 6, 2}, 0, {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}},
  };
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto& view : views) {
    items.emplace_back(view.name, short_tensor(12, view.shape, view.strides, view.first));
  }
  const std::string content = checkpoint(pickled::whole(pickled::dict(items)), {counting(12)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  for (const auto& view : views) EXPECT_EQ(bytes_of(file, file.at(view.name)), elements(view.expected)) << view.name;
  for (const auto& view : views) {  // also if each view is the first one read
    const PtFile again(memory.path());
    EXPECT_EQ(bytes_of(again, again.at(view.name)), elements(view.expected)) << view.name;
  }
}

TEST(PtFile, LongRowsWithGaps) {
  constexpr std::int64_t kRow = 4000;
  const std::string content =
      checkpoint(pickled::whole(short_tensor(3 * kRow, {2, kRow - 10}, {2 * kRow, 1}, 5)), {counting(3 * kRow)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  const std::string all = counting(3 * kRow);
  EXPECT_EQ(bytes_of(file, file.at("tensor")),
            all.substr(10, 2 * (kRow - 10)) + all.substr(4 * kRow + 10, 2 * (kRow - 10)));
}

TEST(PtFile, ElementTypesOfTheirOwn) {
  const std::vector<std::pair<std::string, TensorType>> types = {{"int16", TensorType::kI16},
                                                                 {"uint16", TensorType::kU16},
                                                                 {"uint32", TensorType::kU32},
                                                                 {"uint64", TensorType::kU64},
                                                                 {"complex64", TensorType::kC64},
                                                                 {"float8_e4m3fn", TensorType::kF8E4M3},
                                                                 {"float8_e5m2", TensorType::kF8E5M2},
                                                                 {"float8_e4m3fnuz", TensorType::kF8E4M3Fnuz},
                                                                 {"float8_e5m2fnuz", TensorType::kF8E5M2Fnuz},
                                                                 {"float8_e8m0fnu", TensorType::kF8E8M0}};
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto& [name, type] : types) {
    const auto count = static_cast<std::int64_t>(16 / size_of(type));
    items.emplace_back(name, pickled::typed_tensor(pickled::storage("UntypedStorage", "0", 16), {count}, {1}, name));
  }
  const std::string content = checkpoint(pickled::whole(pickled::dict(items)), {counting(8)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  for (const auto& [name, type] : types) {
    EXPECT_EQ(file.at(name).type, type) << name;
    EXPECT_EQ(bytes_of(file, file.at(name)), counting(8)) << name;
  }
  EXPECT_THAT(file.unreadable(), IsEmpty());
}

// A tensor that cannot be read does not prevent the others from being read.
TEST(PtFile, WhatHasNoTypeIsListedWithItsReason) {
  const std::string negated = pickled::dict({{"neg", "\x88"}});
  const auto rebuilt = [](const std::string& name) {
    return pickled::call(pickled::global("torch._utils", name), {pickled::storage("QInt8Storage", "0", 8), "N"});
  };
  const std::string untyped = pickled::storage("UntypedStorage", "0", 8);
  const std::string root =
      pickled::dict({{"complex", pickled::tensor(pickled::storage("ComplexDoubleStorage", "0", 0), {0}, {1})},
                     {"float4", pickled::typed_tensor(untyped, {8}, {1}, "float4_e2m1fn_x2")},
                     {"future", pickled::typed_tensor(untyped, {8}, {1}, "float2_e1m0")},
                     {"strange", pickled::tensor(pickled::storage("StrangeStorage", "0", 8), {8}, {1})},
                     {"negated", pickled::tensor(pickled::storage("ShortStorage", "0", 4), {4}, {1}, 0, negated)},
                     {"quantized", pickled::parameter(rebuilt("_rebuild_qtensor"))},
                     {"sparse", rebuilt("_rebuild_sparse_tensor")},
                     {"meta", rebuilt("_rebuild_meta_tensor_no_storage")},
                     {"plain", pickled::tensor(pickled::storage("ShortStorage", "0", 4), {4}, {1}, 0, "}")}});
  const std::string content = checkpoint(pickled::whole(root), {counting(4)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  EXPECT_THAT(names_of(file), ElementsAre("plain"));
  const std::vector<std::pair<std::string, std::string>> expected = {{"complex", "torch.ComplexDoubleStorage"},
                                                                     {"float4", "torch.float4_e2m1fn_x2"},
                                                                     {"future", "torch.float2_e1m0"},
                                                                     {"strange", "torch.StrangeStorage"},
                                                                     {"negated", "resolve_neg"},
                                                                     {"quantized", "dequantize"},
                                                                     {"sparse", "to_dense"},
                                                                     {"meta", "without values"}};
  ASSERT_EQ(file.unreadable().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(file.unreadable()[i].name, expected[i].first);
    EXPECT_THAT(file.unreadable()[i].reason, HasSubstr(expected[i].second));
  }
  try {
    file.at("float4");
    ADD_FAILURE() << "given away";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("torch.float4_e2m1fn_x2"));
  }
}

TEST(PtFile, NewerProtocols) {
  const auto text = [](const std::string& value) {
    return "\x8C" + std::string(1, static_cast<char>(value.size())) + value;
  };
  const std::string global = text("collections") + text("OrderedDict") + "\x93\x94";  // this is memo 0
  const std::string body = global + ")R(" + text("a") + "\x94K\x05" + text("b") + "h\x01" + text("c") +
                           "\x8F(K\x06\x90" + text("d") + "C\x02xyu.";
  for (const char protocol : {'\x04', '\x05'}) {
    const std::string pickle =
        std::string("\x80") + protocol + "\x95" + little_endian(std::uint64_t{body.size()}) + body;
    const std::string content = checkpoint(pickle);
    const MemoryFile memory(content.data(), content.size());
    const PtFile file(memory.path());
    EXPECT_EQ(everything_in(file), "a=5\nb=a\nc.0=6\nd=2 bytes\n");
  }
}

TEST(PtFile, ArchivesOfEveryForm) {
  const std::string pickle = pickled::whole(pickled::dict({{"a", short_tensor(4, {4}, {1})}, {"b", "K\x01"}}));
  const std::vector<tests::ZipOptions> forms = {
      {},
      {.sizes_follow = false},
      {.end64 = false},
      {.wide_entries = true},
      {.sizes_follow = false, .end64 = false, .comment = "a comment, which may hold PK\x05\x06"},
      {.flags = 0x0800},
  };
  for (const auto& form : forms) {
    const std::string content = checkpoint(pickle, {counting(4)}, form);
    const MemoryFile memory(content.data(), content.size());
    const PtFile file(memory.path());
    EXPECT_EQ(bytes_of(file, file.at("a")), counting(4));
    file.verify();
  }
  const std::string content = checkpoint(pickle, {counting(4)}, {.checksums = false});
  const MemoryFile memory(content.data(), content.size());
  EXPECT_THROW(PtFile(memory.path()), DataError);
  const PtFile file(memory.path(), {.checksums = false});
  EXPECT_EQ(bytes_of(file, file.at("a")), counting(4));
  EXPECT_THROW(file.verify(), InvalidArgument);
}

TEST(PtFile, DamagedStoragesAreNamed) {
  const std::string root = pickled::dict({{"a", short_tensor(4, {4}, {1})}, {"b", short_tensor(4, {2}, {1})}});
  std::string content = checkpoint(pickled::whole(root), {counting(4), "unused"});
  const std::string good = content;
  const std::uint64_t offset = [&] {
    const MemoryFile memory(content.data(), content.size());
    return PtFile(memory.path()).at("a").storage_offset;
  }();
  content[offset + 7] ^= 1;
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  const auto expect_damage = [&](const std::function<void()>& call, const std::string& tensor) {
    try {
      call();
      ADD_FAILURE() << "read without complaint";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(memory.path()));
      EXPECT_THAT(error.what(), HasSubstr(tensor));
      EXPECT_THAT(error.what(), HasSubstr("archive/data/0"));
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(offset)));
    }
  };
  expect_damage([&] { bytes_of(file, file.at("b")); }, "'b'");
  expect_damage([&] { bytes_of(file, file.at("a")); }, "'a'");
  expect_damage([&] { file.verify(); }, "'a'");

  content = good;
  content[content.find("unused")] ^= 1;  // this byte belongs to no tensor
  const MemoryFile other(content.data(), content.size());
  const PtFile rest(other.path());
  EXPECT_EQ(bytes_of(rest, rest.at("a")), counting(4));
  EXPECT_THROW(rest.verify(), DataError);
}

TEST(PtFile, ThreadsReadTogether) {
  const std::string root = pickled::dict({{"a", short_tensor(12, {12}, {1})}, {"b", short_tensor(12, {3, 4}, {1, 3})}});
  const std::string content = checkpoint(pickled::whole(root), {counting(12)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) EXPECT_EQ(bytes_of(file, file.at("a")), counting(12));
    });
  }
  for (int round = 0; round < 50; ++round) EXPECT_EQ(bytes_of(file, file.at("b")).substr(0, 4), elements({0, 3}));
  for (auto& thread : threads) thread.join();
}

TEST(PtFile, TensorsOfOthersAreRefused) {
  const std::string content = checkpoint(pickled::whole(short_tensor(4, {4}, {1})), {counting(4)});
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  std::vector<std::byte> bytes(8);
  const auto read = [&](const std::function<void(PtTensor&)>& change) {
    PtTensor tensor = file.at("tensor");
    change(tensor);
    file.read(tensor, bytes);
  };
  read([](PtTensor&) {});
  EXPECT_THROW(read([](PtTensor& tensor) { tensor.first = 1; }), InvalidArgument);
  EXPECT_THROW(read([](PtTensor& tensor) { tensor.storage = 99; }), InvalidArgument);
  EXPECT_THROW(read([](PtTensor& tensor) { tensor.storage_bytes = 1 << 20; }), InvalidArgument);
  EXPECT_THROW(read([](PtTensor& tensor) { tensor.strides = {2}; }), InvalidArgument);
  EXPECT_THROW(read([](PtTensor& tensor) { tensor.strides = {-1}; }), InvalidArgument);
  EXPECT_THROW(read([](PtTensor& tensor) { tensor.shape = {2, 2}; }), InvalidArgument);
  EXPECT_THROW(file.read(file.at("tensor"), std::span(bytes).first(6)), InvalidArgument);
}

TEST(PtFile, AFileThatShrinksIsNamed) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("x.pt", checkpoint(pickled::whole(short_tensor(4, {4}, {1})), {counting(4)}));
  const PtFile file(path);
  std::filesystem::resize_file(path, file.at("tensor").storage_offset + 3);
  EXPECT_THROW(bytes_of(file, file.at("tensor")), DataError);
  EXPECT_THROW(file.verify(), DataError);
}

TEST(PtFile, MissingFile) {
  const tests::TemporaryFolder folder;
  try {
    const PtFile file(folder.path() / "absent");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
  }
}

}  // namespace
}  // namespace reigen::format::pt_file_test
