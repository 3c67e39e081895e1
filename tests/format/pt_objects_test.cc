// Files of torch.save with objects that cannot be read, and archives of C++'s torch::save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/memory_file.h"
#include "format/pt_writer.h"
#include "harness/folders.h"
#include "reigen/base/error.h"
#include "reigen/format/pt_file.h"

namespace reigen::format::pt_objects_test {
namespace {

using testing::HasSubstr;
using tests::checkpoint;
using tests::MemoryFile;
using tests::script_archive;
namespace pickled = tests::pickled;

const std::string kStorage = "abcdefgh";  // the storage of the tensors here: four elements of two bytes

std::string tensor(std::int64_t count = 4) {
  return pickled::tensor(pickled::storage("ShortStorage", "0", 4), {count}, {1});
}

// Everything in a file, one item a line.
std::string everything_in(const std::string& content) {
  const MemoryFile memory(content.data(), content.size());
  const PtFile file(memory.path());
  std::string all;
  for (const auto& entry : file.tensors()) {
    std::string bytes(entry.bytes, '?');
    file.read(entry, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    all += entry.name + "=" + bytes + "\n";
  }
  for (const auto& value : file.values()) all += value.name + ":" + value.text + "\n";
  for (const auto& entry : file.unreadable()) all += entry.name + "!" + entry.reason + "\n";
  for (const auto& object : file.objects()) all += object.name + "?" + object.type + "\n";
  file.verify();
  return all;
}
std::string everything_in_pickle(const std::string& value) {
  return everything_in(checkpoint(pickled::whole(value), {kStorage}));
}

TEST(PtObjects, ANumberOfNumPyDoesNotKeepTheWeightsFromBeingRead) {
  const std::string dtype =
      pickled::global("numpy", "dtype") + pickled::tuple({pickled::text("f8"), "\x89", "\x88"}) + "R" +
      pickled::tuple({"K\x03", pickled::text("<"), "N", "N", "N", pickled::number(-1), pickled::number(-1), "K\x01"}) +
      "b";
  const std::string number = pickled::call(
      pickled::global("numpy._core.multiarray", "scalar"),
      {dtype,
       pickled::call(pickled::global("_codecs", "encode"), {pickled::text("12345678"), pickled::text("latin1")})});
  const std::string namespace_ = pickled::object("argparse", "Namespace", {}, pickled::dict({{"lr", "K\x01"}}));
  EXPECT_EQ(everything_in_pickle(pickled::dict({{"model", pickled::ordered({{"w", pickled::parameter(tensor())}})},
                                                {"best", number},
                                                {"args", namespace_},
                                                {"path", pickled::object("pathlib", "PosixPath", {pickled::text("/")})},
                                                {"class", pickled::global("__main__", "Net")},
                                                {"epoch", "K\x03"}})),
            "model.w=abcdefgh\nclass:__main__.Net\nepoch:3\nbest?numpy._core.multiarray.scalar\n"
            "args?argparse.Namespace\npath?pathlib.PosixPath\n");
}

TEST(PtObjects, TensorsThatHangOnThemAreFound) {
  const std::string list = pickled::global("collections", "deque") + ")R" + "(" + tensor(1) + tensor(2) + "e";
  const std::string dict =
      pickled::global("easydict", "EasyDict") + ")\x81" + "(" + pickled::text("w") + tensor(3) + "u";
  const std::string slots =
      pickled::object("a", "Slots", {"K\x05"}, pickled::tuple({"N", pickled::dict({{"s", tensor(1)}})}));
  EXPECT_EQ(
      everything_in_pickle(pickled::dict(
          {{"pair", pickled::object("__main__", "Pair", {"K\x01", tensor(1)})},
           {"list", list},
           {"dict", dict},
           {"slots", slots},
           {"same", pickled::object("a", "B", {tensor(1)}, pickled::dict({{"0", tensor(2)}}))},
           {"inner", pickled::object("a", "B", {},
                                     pickled::dict({{"x", pickled::list({slots})}, {"text", pickled::text("t")}}))}})),
      "pair.1=ab\nlist.0=ab\nlist.1=abcd\ndict.w=abcdef\nslots.s=ab\nsame.0=ab\nsame.0#2=abcd\n"
      "inner.x.0.s=ab\npair?__main__.Pair\nlist?collections.deque\ndict?easydict.EasyDict\nslots?a.Slots\n"
      "same?a.B\ninner?a.B\n");
  EXPECT_EQ(everything_in_pickle(pickled::object("a", "B", {tensor(1)})), "0=ab\nobject?a.B\n");
}

TEST(PtObjects, LongKeysInThemKeepNothingFromBeingRead) {
  const std::string key(5000, 'k');
  const std::string cache = pickled::dict({{key, "K\x01"}, {"t", tensor(1)}});
  EXPECT_EQ(everything_in_pickle(pickled::dict({{"w", tensor()}, {"o", pickled::object("a", "B", {}, cache)}})),
            "w=abcdefgh\no.t=ab\no?a.B\n");
  const std::string holder = pickled::dict({{key, tensor(2)}, {"t", tensor(1)}});
  EXPECT_EQ(everything_in_pickle(pickled::dict({{"w", tensor()}, {"o", pickled::object("a", "B", {}, holder)}})),
            "w=abcdefgh\no.t=ab\no?a.B\no?what has a name of more than 4096 bytes\n");
}

TEST(PtObjects, AModuleHasTheNamesOfItsStateDict) {
  const std::string passing =
      pickled::call(pickled::global("__builtin__", "set"), {pickled::list({pickled::text("scratch")})});
  const auto module = [&](const std::string& name, const std::vector<std::pair<std::string, std::string>>& modules,
                          const std::vector<std::pair<std::string, std::string>>& parameters) {
    return pickled::object("torch.nn.modules.x", name, {},
                           pickled::dict({{"training", "\x88"},
                                          {"_parameters", pickled::dict(parameters)},
                                          {"_buffers", pickled::dict({{"mean", tensor(1)}, {"scratch", tensor(1)}})},
                                          {"_non_persistent_buffers_set", passing},
                                          {"_modules", pickled::dict(modules)}}));
  };
  EXPECT_EQ(everything_in_pickle(pickled::dict(
                {{"net", module("Net", {{"0", module("Linear", {}, {{"weight", tensor(2)}, {"bias", "N"}})}},
                                {{"scale", tensor(3)}})}})),
            "net.scale=abcdef\nnet.mean=ab\nnet.0.weight=abcd\nnet.0.mean=ab\nnet?torch.nn.modules.x.Net\n");
}

TEST(PtObjects, WhatHoldsItselfIsLookedAtOnce) {
  // An object (memo 1) whose state contains the object itself, the list (memo 0) that contains it, and a tensor.
  const std::string root = "]\x94" + pickled::global("a", "B") + ")\x81\x94" +
                           pickled::dict({{"self", std::string("h\1", 2)},
                                          {"list", std::string("h\0", 2)},
                                          {"again", pickled::list({std::string("h\1", 2)})},
                                          {"w", tensor(1)}}) +
                           "ba";
  EXPECT_EQ(everything_in_pickle(root), "0.w=ab\n0?a.B\n");
  // 60 objects that contain each other: the number of paths through them is huge.
  std::string all = "](";
  for (int i = 0; i < 60; ++i) all += pickled::global("a", "B") + ")\x81q" + std::string(1, static_cast<char>(i));
  all += "e";
  std::string links;
  for (int i = 0; i < 60; ++i) {
    links += "h" + std::string(1, static_cast<char>(i)) + "](";
    for (int j = 0; j < 60; ++j) links += "h" + std::string(1, static_cast<char>(j));
    links += "eb0";
  }
  const std::string content = everything_in_pickle(all + links);
  EXPECT_THAT(content, HasSubstr("59?a.B"));
  // Lists nested deeper than in any model, inside an object, with weights beside it.
  std::string deep = "N";
  for (int i = 0; i < 400; ++i) deep = "]" + deep + "a";
  EXPECT_THAT(everything_in_pickle(pickled::dict({{"o", pickled::object("a", "B", {deep})}, {"w", tensor(1)}})),
              HasSubstr("w=ab\n"));
}

TEST(PtObjects, ModulesInModulesWithoutEndAreRead) {
  // First, the _modules of a state are the state itself. Second, states of modules are nested deeper than in any model.
  const std::string self = pickled::global("a", "Net") + ")\x81}\x94(" + pickled::text("_parameters") +
                           pickled::dict({{"w", tensor(1)}}) + pickled::text("_modules") + std::string("h\0", 2) + "ub";
  EXPECT_THAT(everything_in_pickle(self), HasSubstr("w=ab\n"));
  std::string deep = "}";
  for (int i = 0; i < 3000; ++i)
    deep = "}(" + pickled::text("_parameters") + "}" + pickled::text("_modules") + deep + "u";
  EXPECT_THAT(everything_in_pickle(pickled::object("a", "Net", {}, deep)), HasSubstr("object?a.Net\n"));
  // Many buffers, and as many names of buffers that are left out.
  std::string names = "](";
  std::string buffers = "}(";
  for (int i = 0; i < 30'000; ++i) {
    names += pickled::text("n" + std::to_string(i));
    buffers += pickled::text("b" + std::to_string(i)) + "N";
  }
  const std::string passing = pickled::call(pickled::global("__builtin__", "set"), {names + "e"});
  EXPECT_EQ(everything_in_pickle(pickled::object("a", "Net", {},
                                                 pickled::dict({{"_parameters", "}"},
                                                                {"_buffers", buffers + "u"},
                                                                {"_non_persistent_buffers_set", passing},
                                                                {"_modules", "}"}}))),
            "object?a.Net\n");
}

TEST(PtObjects, KeysOfEveryKind) {
  const std::string key = pickled::tuple({"K\x01", pickled::text("a")});
  const std::string root = "}(" + key + tensor(1) + pickled::global("torch", "float32") + tensor(1) + ")" + tensor(1) +
                           pickled::global("a", "B") + tensor(1) + pickled::object("a", "B", {}) + tensor(1) +
                           "C\x01x" + tensor(1) + "\x88" + tensor(1) + tensor(1) + tensor(1) + "u";
  EXPECT_EQ(everything_in_pickle(root),
            "(1, 'a')=ab\ntorch.float32=ab\n()=ab\na.B=ab\n<a.B 4>=ab\n<bytes 5>=ab\nTrue=ab\n<tensor 7>=ab\n");
}

TEST(PtObjects, NamedArgumentsAndSubclasses) {
  EXPECT_EQ(everything_in_pickle(pickled::global("a", "B") + pickled::tuple({tensor(1)}) +
                                 pickled::dict({{"w", tensor(2)}}) + "\x92"),
            "0=ab\nw=abcd\nobject?a.B\n");
  EXPECT_EQ(
      everything_in_pickle(pickled::call(pickled::global("collections", "defaultdict"), {pickled::global("a", "B")})),
      "");
  const std::string whole = tensor(2);
  const std::string rebuild = pickled::global("torch._utils", "_rebuild_tensor_v2");
  const std::string arguments = whole.substr(rebuild.size(), whole.size() - rebuild.size() - 1);
  EXPECT_EQ(everything_in_pickle(pickled::call(pickled::global("torch._tensor", "_rebuild_from_type_v2"),
                                               {rebuild, pickled::global("a", "MyTensor"), arguments, "N"})),
            "tensor=abcd\n");
  EXPECT_EQ(everything_in_pickle(std::string("\x96\x03\0\0\0\0\0\0\0abc", 12)), "value:3 bytes\n");
}

TEST(PtScripts, ModulesOfCppAreRead) {
  const std::string inner = pickled::script_module({{"weight", tensor(2)}, {"bias", tensor(1)}});
  const std::string root =
      pickled::script_module({{"0", inner}, {"1", pickled::script_module({{"0", inner}})}, {"k", "K\x03"}});
  const std::string content = script_archive(pickled::whole(root), {kStorage});
  EXPECT_EQ(everything_in(content), "0.weight=abcd\n0.bias=ab\n1.0.weight=abcd\n1.0.bias=ab\nk:3\n");
  const MemoryFile memory(content.data(), content.size());
  EXPECT_TRUE(PtFile(memory.path()).is_script());
}

TEST(PtScripts, ValuesOfTorchScript) {
  const auto jit = [](const char* name) { return pickled::global("torch.jit._pickle", name); };
  EXPECT_EQ(everything_in(script_archive(
                pickled::whole(pickled::script_module(
                    {{"ints", pickled::call(jit("build_intlist"), {pickled::list({"K\x01"})})},
                     {"tensors", pickled::call(jit("build_tensorlist"), {pickled::list({tensor(1)})})},
                     {"dict", pickled::call(jit("restore_type_tag"), {pickled::dict({{"a", tensor(2)}}),
                                                                      pickled::text("Dict[str, Tensor]")})}})),
                {kStorage})),
            "tensors.0=ab\ndict.a=abcd\nints.0:1\n");
}

TEST(PtScripts, StatesOfOptimizersHaveTheParametersNumber) {
  const auto group = [](const std::string& first, const std::string& second) {
    return pickled::script_module({{"params/0", pickled::text(first)},
                                   {"params/1", pickled::text(second)},
                                   {"options", pickled::script_module({})}});
  };
  const auto state = [](std::int64_t count) {
    return pickled::script_module({{"step", "K\x01"}, {"exp_avg", tensor(count)}});
  };
  const std::string root = pickled::script_module(
      {{"pytorch_version", pickled::text("1.5.0")},
       {"state",
        pickled::script_module({{"94490372052704", state(1)}, {"700", state(2)}, {"94490372051824", state(3)}})},
       {"param_groups", pickled::script_module({{"param_groups/0", group("94490372051824", "94490372052704")},
                                                {"param_groups/1", group("700", "701")}})}});
  EXPECT_THAT(everything_in(script_archive(pickled::whole(root), {kStorage})),
              testing::AllOf(HasSubstr("state.1.exp_avg=ab\n"), HasSubstr("state.2.exp_avg=abcd\n"),
                             HasSubstr("state.0.exp_avg=abcdef\n")));
}

std::vector<std::string> names_in(const std::string& file_name, std::string* objects = nullptr) {
  const PtFile file(std::string(kSourceFolder) + "/tests/format/files/" + file_name);
  file.verify();
  std::vector<std::string> names;
  for (const auto& entry : file.tensors()) names.push_back(entry.name);
  for (const auto& object : file.objects()) {
    if (objects != nullptr) *objects += object.name + "?" + object.type + ";";
  }
  EXPECT_TRUE(file.unreadable().empty());
  return names;
}

// Files that PyTorch itself wrote.
TEST(PtScripts, FilesOfPyTorch) {
  EXPECT_THAT(names_in("module_sequential.pt"),
              testing::ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                   "1.num_batches_tracked", "2.weight", "2.bias"));
  const auto states = names_in("optimizer_adam.pt");
  for (const char* name : {"state.0.exp_avg", "state.1.exp_avg_sq", "state.2.max_exp_avg_sq", "state.3.exp_avg"}) {
    EXPECT_THAT(states, testing::Contains(name));
  }
  std::string objects;
  EXPECT_THAT(names_in("numpy_scalar.pt", &objects), testing::Contains("model.conv.weight"));
  EXPECT_EQ(objects, "best?numpy._core.multiarray.scalar;n?numpy._core.multiarray.scalar;");
  objects.clear();
  EXPECT_THAT(names_in("module.pt", &objects),
              testing::UnorderedElementsAre("scale", "conv.weight", "conv.bias", "blocks.0.0.weight", "blocks.0.0.bias",
                                            "blocks.0.1.weight", "blocks.0.1.bias", "blocks.0.1.running_mean",
                                            "blocks.0.1.running_var", "blocks.0.1.num_batches_tracked",
                                            "blocks.1.0.weight", "blocks.1.0.bias", "blocks.1.1.weight",
                                            "blocks.1.1.bias", "blocks.1.1.running_mean", "blocks.1.1.running_var",
                                            "blocks.1.1.num_batches_tracked"));
  EXPECT_EQ(objects, "object?__main__.Net;");
}

}  // namespace
}  // namespace reigen::format::pt_objects_test
