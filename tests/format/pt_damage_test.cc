#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "format/memory_file.h"
#include "format/pt_writer.h"
#include "reigen/base/error.h"
#include "reigen/format/pt_file.h"

namespace reigen::format::pt_damage_test {
namespace {

using testing::HasSubstr;
using tests::checkpoint;
using tests::little_endian;
using tests::MemoryFile;
namespace pickled = tests::pickled;

const std::string kStorage(8, 'x');  // the storage of the tensors here: four elements of two bytes

std::string short_tensor(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                         std::int64_t first = 0) {
  return pickled::tensor(pickled::storage("ShortStorage", "0", 4), shape, strides, first);
}

// Everything that can be read from the file. Empty if the reader throws a DataError, whose text is put into `message`.
std::optional<std::string> everything_in(const std::string& content, const PtOptions& options = {},
                                         std::string* message = nullptr) {
  const MemoryFile memory(content.data(), content.size());
  try {
    const PtFile file(memory.path(), options);
    std::string all;
    for (const auto& tensor : file.tensors()) {
      std::string bytes(tensor.bytes, '?');
      file.read(tensor, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
      all += tensor.name + "|" + std::string(name_of(tensor.type));
      for (const auto dim : tensor.shape) all += "|" + std::to_string(dim);
      all += "=" + bytes + "\n";
    }
    for (const auto& value : file.values()) all += value.name + "=" + value.text + "\n";
    for (const auto& tensor : file.unreadable()) all += tensor.name + "!" + tensor.reason + "\n";
    for (const auto& object : file.objects()) all += object.name + "?" + object.type + "\n";
    return all;
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(memory.path()));
    EXPECT_THAT(error.what(), HasSubstr("fix: "));
    if (message != nullptr) *message = error.what();
    return std::nullopt;
  }
}

struct Wrong {
  const char* name;
  std::string content;
  const char* text;  // a part of the message
};

void expect_refused(const std::vector<Wrong>& cases, const PtOptions& options = {}) {
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.name);
    std::string message;
    EXPECT_FALSE(everything_in(wrong.content, options, &message)) << "read without complaint";
    EXPECT_THAT(message, HasSubstr(wrong.text));
  }
}

Wrong pickle(const char* name, const std::string& instructions, const char* text) {
  return {name, checkpoint("\x80\x02" + instructions, {kStorage}), text};
}
Wrong value(const char* name, const std::string& of, const char* text) { return pickle(name, of + ".", text); }

TEST(PtDamage, CodeIsRefusedByName) {
  const std::string storage = pickled::storage("ShortStorage", "0", 4);
  const std::string from_type = pickled::global("torch._tensor", "_rebuild_from_type_v2");
  const std::string rebuild = pickled::global("torch._utils", "_rebuild_tensor_v2");
  expect_refused({
      value("system", pickled::call(pickled::global("posix", "system"), {pickled::text("true")}),
            "posix.system, which would run code"),
      value("eval", pickled::call(pickled::global("__builtin__", "eval"), {pickled::text("1")}), "__builtin__.eval"),
      value("by texts", pickled::text("os") + pickled::text("system") + "\x93", "os.system"),
      value("never called", pickled::tuple({pickled::global("os", "system"), "K\x01"}), "os.system"),
      value("under the mark", pickled::global("os", "system") + "0N", "os.system"),
      value("an inherited one", pickled::global("torch", "storage.os.system"), "torch.storage.os.system"),
      value("another module's", pickled::global("numpy.os", "execv"), "numpy.os.execv"),
      value("a shell", pickled::global("subprocess", "Popen") + ")R", "subprocess.Popen"),
      value("call of a text", pickled::text("eval") + ")R", "a call of a value"),
      value("call with a list", pickled::global("torch", "Size") + "]R", "torch.Size with other arguments"),
      value("call of a type", pickled::call(pickled::global("torch", "FloatStorage"), {}), "torch.FloatStorage with"),
      value("call of int", pickled::call(pickled::global("__builtin__", "int"), {pickled::text("1")}), "builtins.int"),
      value("dict of a text", pickled::call(pickled::global("collections", "OrderedDict"), {pickled::text("a")}),
            "collections.OrderedDict with other"),
      value("default of a text", pickled::call(pickled::global("collections", "defaultdict"), {pickled::text("a")}),
            "collections.defaultdict with other"),
      value("set of a text", pickled::call(pickled::global("__builtin__", "set"), {pickled::text("a")}),
            "builtins.set with other"),
      value("device of a number", pickled::call(pickled::global("torch", "device"), {"K\x01"}), "torch.device with"),
      value("bytes of a number", pickled::call(pickled::global("__builtin__", "bytes"), {"K\x01"}), "builtins.bytes"),
      value("parameter of a number",
            pickled::call(pickled::global("torch._utils", "_rebuild_parameter"), {"K\x01", "\x88", "N"}),
            "_rebuild_parameter with other"),
      value("a subclass without arguments",
            pickled::call(from_type, {rebuild, pickled::global("torch.nn.parameter", "Other"), ")", "N"}),
            "tensor 'tensor'"),
      value("a subclass of a function", pickled::call(from_type, {rebuild, rebuild, ")", "N"}), "_from_type_v2 with"),
      value("a subclass of itself", pickled::call(from_type, {from_type, pickled::global("torch", "Tensor"), ")", "N"}),
            "_from_type_v2 with"),
      value("a subclass of a set",
            pickled::call(from_type,
                          {pickled::global("__builtin__", "set"), pickled::global("torch", "Tensor"), ")", "N"}),
            "_from_type_v2 with"),
      value("attributes of a list", "]}b", "attributes of another value"),
      value("attributes of a storage", storage + "}b", "attributes of another value"),
  });
}

// Unknown names become values, and the objects that they would make are not read. No code runs for them.
TEST(PtDamage, UnknownNamesAreShownAndNotRun) {
  const auto shown = [](const std::string& value) { return everything_in(checkpoint(pickled::whole(value))); };
  EXPECT_EQ(shown(pickled::global("torch.nn.modules.conv", "Conv2d") + ")\x81"),
            "object?torch.nn.modules.conv.Conv2d\n");
  EXPECT_EQ(shown(pickled::call(pickled::global("torch", "load"), {pickled::text("x")})), "object?torch.load\n");
  EXPECT_EQ(shown(pickled::global("torch", "storage.os")), "value=torch.storage.os\n");
  EXPECT_EQ(shown(pickled::global("a", "\x1B[31m\xFF")), "value=a.?[31m?\n");
  EXPECT_EQ(shown(pickled::global("a", std::string(1000, 'b'))), "value=a." + std::string(80, 'b') + "...\n");
}

TEST(PtDamage, AttributesAreLeftOut) {
  const std::string tensor = short_tensor({4}, {1});
  const std::string from_type = pickled::global("torch._tensor", "_rebuild_from_type_v2");
  const std::string arguments = tensor.substr(pickled::global("torch._utils", "_rebuild_tensor_v2").size());
  const std::string root = pickled::dict(
      {{"a", pickled::call(from_type,
                           {pickled::global("torch._utils", "_rebuild_tensor_v2"), pickled::global("torch", "Tensor"),
                            arguments.substr(0, arguments.size() - 1), pickled::dict({{"tag", "K\x01"}})})},
       {"b", pickled::ordered({{"c", "K\x02"}}) + pickled::dict({{"_metadata", pickled::ordered({})}}) + "b"}});
  EXPECT_EQ(everything_in(checkpoint(pickled::whole(root), {kStorage})), "a|I16|4=xxxxxxxx\nb.c=2\n");
}

TEST(PtDamage, BrokenPicklesAreNamed) {
  const std::string all_ones(8, '\xFF');
  expect_refused({
      {"empty", checkpoint(""), "the record's last"},
      {"no protocol", checkpoint("N."), "no protocol"},
      {"protocol 1", checkpoint("\x80\x01N."), "pickle protocol 1"},
      {"protocol 6", checkpoint("\x80\x06N."), "pickle protocol 6"},
      pickle("no end", "N", "0 bytes, the record's last"),
      pickle("nothing", ".", "an empty stack"),
      pickle("two values", "NN.", "more than one value"),
      pickle("a mark", "(", "0 bytes"),
      pickle("a mark at the end", "(N.", "more than one value"),
      pickle("something after", "N.N", "1 bytes after the end"),
      pickle("protocol twice", "\x80\x02N.", "the protocol again"),
      pickle("unknown", "\xFF", "instruction 0xff"),
      pickle("instance", "(ios\nsystem\n.", "instruction 0x69"),
      pickle("extension", "\x82\x01.", "instruction 0x82"),
      pickle("old text", "S'a'\n.", "instruction 0x53"),
      pickle("frame", "\x95" + all_ones + "N.", "a frame"),
      pickle("text too long", "X" + little_endian(100U) + "abc.", "100 bytes"),
      pickle("text of all ones", "\x8D" + all_ones + "abc.", "18446744073709551615"),
      pickle("long integer", "\x8B" + std::string(4, '\xFF') + ".", "4294967295"),
      value("no utf-8", pickled::text("a\xFF"), "not UTF-8: a?"),
      value("cut utf-8", pickled::text("\xC3"), "not UTF-8"),
      value("overlong utf-8", pickled::text("\xE0\x80\x80"), "not UTF-8"),
      value("surrogate", pickled::text("\xED\xA0\x80"), "not UTF-8"),
      value("beyond unicode", pickled::text("\xF4\x90\x80\x80"), "not UTF-8"),
      value("name without an end", "cposix", "a name without an end"),
      value("name of numbers", "K\x01K\x02\x93", "no name"),
      value("pop of nothing", "0", "an empty stack"),
      value("pop under a mark", "N(K\x01\x85\x85\x86", "an empty stack"),
      value("no mark", "Nt", "no mark"),
      value("dup of nothing", "2", "an empty stack"),
      value("put of nothing", "q\x01", "an empty stack"),
      value("put far away", "Nr\xFF\xFF\xFF\x7F", "memo 2147483647"),
      value("get of nothing", std::string("h\0", 2), "memo 0"),
      value("get far away", "j\xFF\xFF\xFF\xFF", "memo 4294967295"),
      value("append to a tuple", ")Na", "a list to add to"),
      value("append to a dict", "}Na", "a list to add to"),
      value("item of a list", "]NNs", "a dict to add to"),
      value("half an item", "}(Nu", "a key without a value"),
      value("element of a list", "](N\x90", "a list to add to"),
      value("a key of a list", "}]Ns", "neither text nor a number"),
      value("reference to a text", pickled::text("0") + "Q", "another reference"),
      value("reference to little", pickled::tuple({pickled::text("storage")}) + "Q", "another reference"),
      value("a module's reference",
            pickled::tuple({pickled::text("module"), pickled::global("torch", "FloatStorage"), pickled::text("0"),
                            pickled::text("cpu"), "K\x01"}) +
                "Q",
            "another reference"),
      value("a tensor as a storage", pickled::storage("ShortStorage", "0", -1), "another reference"),
  });
}

TEST(PtDamage, TensorsOutsideTheirStorageAreNamed) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto tensor = [](const char* name, const std::vector<std::int64_t>& shape,
                         const std::vector<std::int64_t>& strides, std::int64_t first, const char* text) {
    return value(name, pickled::dict({{"w", short_tensor(shape, strides, first)}}), text);
  };
  const std::string function = pickled::global("torch._utils", "_rebuild_tensor_v2");
  const std::string numbers = pickled::numbers({4});
  const std::string storage = pickled::storage("ShortStorage", "0", 4);
  expect_refused({
      tensor("too many", {5}, {1}, 0, "tensor 'w'"),
      tensor("too far", {4}, {1}, 1, "first element 1"),
      tensor("beyond", {1}, {1}, 4, "first element 4"),
      tensor("beyond alone", {}, {}, 4, "first element 4"),
      tensor("first of all", {1}, {1}, kMost, "9223372036854775807"),
      tensor("stride", {2}, {4}, 0, "strides [4]"),
      tensor("large stride", {3}, {kMost}, 0, "strides [9223372036854775807]"),
      tensor("two strides", {2, 2}, {2, 2}, 0, "strides [2, 2]"),
      tensor("large shape", {kMost}, {0}, 0, "shape [9223372036854775807]"),
      tensor("large shapes", {1LL << 32, 1LL << 32}, {0, 0}, 0, "shape [4294967296, 4294967296]"),
      tensor("negative shape", {-1}, {1}, 0, "another number"),
      tensor("negative stride", {2}, {-1}, 1, "another number"),
      tensor("negative first", {2}, {1}, -1, "another number"),
      tensor("ranks", {2, 2}, {1}, 0, "shape [2, 2]"),
      tensor("rank", std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1), 0, "65 dimensions"),
      tensor("expanded far", {1LL << 40}, {0}, 0, "PtOptions::max_repeated_bytes"),
      value("no storage", pickled::tensor(pickled::storage("ShortStorage", "7", 4), {4}, {1}), "archive/data/7"),
      value("another folder", pickled::tensor(pickled::storage("ShortStorage", "../version", 1), {1}, {1}),
            "no record for its storage"),
      value("a larger storage", pickled::tensor(pickled::storage("ShortStorage", "0", 5), {4}, {1}), "5 elements"),
      value("a smaller storage", pickled::tensor(pickled::storage("ShortStorage", "0", 3), {3}, {1}), "3 elements"),
      value("another type", pickled::tensor(pickled::storage("LongStorage", "0", 4), {4}, {1}), "4 elements of I64"),
      value("storage of all", pickled::tensor(pickled::storage("LongStorage", "0", kMost), {4}, {1}), "elements"),
      value("a text as shape",
            pickled::call(function, {storage, pickled::number(0), pickled::text("4"), numbers, "N", "N"}),
            "tensor 'tensor'"),
      value("a text as number",
            pickled::call(function, {storage, "K\x01", pickled::tuple({pickled::text("4")}), numbers, "N", "N"}),
            "another number"),
      value("too few arguments", pickled::call(function, {storage, "K\x01", numbers, numbers}), "other arguments"),
      value("no storage at all", pickled::call(function, {"N", "K\x01", numbers, numbers, "N", "N"}),
            "other arguments"),
      value("name twice",
            pickled::dict({{"a.0", short_tensor({4}, {1})}, {"a", pickled::list({short_tensor({4}, {1})})}}), "'a.0'"),
  });
}

// Small files that would need much memory or time.
TEST(PtDamage, LimitsHold) {
  std::string laughs = "](NNNNNNNNNNe\x94";  // a list of ten, then a list of ten such lists, and so on
  for (int i = 0; i < 12; ++i) {
    laughs += "0](";
    for (int j = 0; j < 10; ++j) laughs += "h" + std::string(1, static_cast<char>(i));
    laughs += "e\x94";
  }
  std::string empty_laughs = laughs;
  empty_laughs.replace(2, 10, "");
  std::string deep = "N";
  for (int i = 0; i < 300; ++i) deep = "]" + deep + "a";
  std::string many_deep = std::string(100'000, ']') + std::string(99'999, 'a');
  std::string long_names = "N";
  for (int i = 0; i < 50; ++i) long_names = pickled::dict({{std::string(100, 'k'), long_names}});
  std::string repeated_text = pickled::text(std::string(1 << 20, 't')) + "\x94" + "0](";
  for (int i = 0; i < 200; ++i) repeated_text += std::string("h\0", 2);
  std::string repeated_tensor = pickled::dict({{"a", short_tensor({1LL << 31}, {0})}});
  repeated_tensor = "](" + repeated_tensor + "\x94" + std::string("h\0h\0", 4) + "e";
  expect_refused({
      pickle("laughs", laughs + ".", "more than 1000000"),
      pickle("empty laughs", empty_laughs + ".", "more than 1000000"),
      value("in itself", "]\x94" + std::string("h\0a", 3), "inside itself"),
      value("in itself with marks", "}\x94(" + pickled::text("a") + std::string("h\0u", 3), "inside itself"),
      value("a set in itself", "]\x94" + pickled::global("__builtin__", "set") + std::string("h\0\x85Ra", 5),
            "inside itself"),
      value("deep", deep, "more depth"),
      value("very deep", many_deep, "more depth"),
      value("long names", long_names, "a name of"),
      value("a long key", pickled::dict({{std::string(100'000, 'k'), "N"}}), "a name of 4097 bytes"),
      value("repeated text", repeated_text + "e", "names and texts"),
      value("repeated tensor", repeated_tensor, "max_repeated_bytes"),
  });
  const PtOptions small{.max_entries = 10, .max_repeated_bytes = 16};
  expect_refused(
      {value("values", "]" + std::string(400, 'N') + "(" + "0", "values"),
       value("marks", std::string(400, '('), "values"), value("memo", "N" + std::string(400, '\x94'), "values"),
       value("containers", std::string(200, '}'), "containers"),
       value("entries", "](" + std::string(10, 'N') + "e", "more than 10")},
      small);
  EXPECT_TRUE(everything_in(value("entries", "](" + std::string(9, 'N') + "e", "").content, small));
}

std::string archive(const std::vector<std::pair<std::string, std::string>>& records,
                    const tests::ZipOptions& options = {}) {
  tests::ZipWriter zip(options);
  for (const auto& [name, content] : records) zip.add(name, content);
  return zip.finish();
}

TEST(PtDamage, OtherFilesAreNamed) {
  const std::string pickle = pickled::whole("N");
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  expect_refused({
      {"empty file", "", "50 4b 03 04"},
      {"text", "hello", "68 65 6c 6c"},
      {"bare pickle", pickle, "before 1.6"},
      {"tar", tar, "tar file"},
      {"old script", archive({{"m/model.json", "{}"}, {"m/code/__torch__.py", "x"}}), "torch.jit.load"},
      {"packed script", archive({{"m/data.pkl", pickle}, {"m/code/__torch__.py", "x"}}, {.method = 8}),
       "packed by method 8 (deflate)"},
      {"packed", checkpoint(pickle, {}, {.method = 8}), "zip -r -0"},
      {"encrypted", checkpoint(pickle, {}, {.flags = 1}), "flags 0x0009"},
      {"big-endian", checkpoint(pickle, {}, {}, "big"), "little-endian machine"},
      {"another order", checkpoint(pickle, {}, {}, "middle"), "'middle'"},
      {"long order", checkpoint(pickle, {}, {}, std::string(1000, 'x')), "another text"},
      {"no pickle", archive({{"m/version", "3"}}), "no 'm/data.pkl'"},
      {"no folder", archive({{"data.pkl", pickle}}), "what torch.save writes"},
      {"another folder", archive({{"m/version", "3"}, {"n/data.pkl", pickle}}), "no 'm/data.pkl'"},
      {"record twice", archive({{"m/data.pkl", pickle}, {"m/data.pkl", pickle}}), "twice"},
      {"written without checksums", checkpoint(pickle, {}, {.checksums = false}), "PtOptions::checksums"},
      {"something after", checkpoint(pickle) + "x", "end record"},
      {"something before", "PK\x03\x04" + checkpoint(pickle), "zip"},
  });
}

std::string good_checkpoint() {
  const std::string root = pickled::dict(
      {{"model", pickled::ordered({{"weight", pickled::parameter(short_tensor({2, 2}, {1, 2}))},
                                   {"bias", pickled::tensor(pickled::storage("FloatStorage", "1", 2), {2}, {1})},
                                   {"empty", pickled::tensor(pickled::storage("FloatStorage", "2", 0), {0}, {1})}})},
       {"lr", pickled::real(0.1)},
       {"complex", pickled::tensor(pickled::storage("ComplexFloatStorage", "1", 1), {1}, {1})}});
  return checkpoint(pickled::whole(root), {"abcdefgh", "12345678", ""});
}

// Any byte is changed in two ways. The reader must give a DataError or the same content as before. Bytes without a
// meaning (times, padding, bytes after a record) may change.
TEST(PtDamage, NoChangedByteGoesUnseen) {
  const std::string good = good_checkpoint();
  const auto expected = everything_in(good);
  ASSERT_TRUE(expected);
  EXPECT_THAT(*expected, HasSubstr("model.weight|I16|2|2=abefcdgh\n"));
  std::size_t refused = 0;
  std::size_t silent = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int change : {0xFF, 1 << at % 8}) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      const auto found = everything_in(damaged);
      if (!found) ++refused;
      if (found && *found != *expected) {
        ++silent;
        ADD_FAILURE() << "byte " << at << " changed by " << change;
      }
    }
  }
  EXPECT_EQ(silent, 0u);
  EXPECT_GT(refused, good.size());
}

TEST(PtDamage, NoCutGoesUnseen) {
  const std::string good = good_checkpoint();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(everything_in(good.substr(0, length))) << length;
  }
  for (std::size_t at = 0; at < good.size(); at += 7) {  // a byte is missing inside
    EXPECT_FALSE(everything_in(good.substr(0, at) + good.substr(at + 1))) << at;
  }
}

}  // namespace
}  // namespace reigen::format::pt_damage_test
