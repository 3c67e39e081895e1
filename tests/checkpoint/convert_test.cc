#include "reigen/checkpoint/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "checkpoint/layouts.h"
#include "format/pt_writer.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing_checkpoint::differences;
using testing_checkpoint::hold;
using testing_checkpoint::Layout;
using testing_checkpoint::some_tensors;

class ConvertTest : public ::testing::Test {
 protected:
  fs::path save_step(std::int64_t step) const {
    const auto held = hold(some_tensors(), Layout::kFirst, 0, 1, static_cast<std::uint64_t>(step));
    return save(root_ / "run" / "checkpoints", {.step = step}, held.contents, 3);
  }
  // The names of tensors that differ from those of some_tensors() with this salt.
  static std::vector<std::string> wrong(const Weights& weights, std::uint64_t salt) {
    std::vector<std::string> result;
    for (const auto& tensor : some_tensors()) {
      const TensorInfo* info = weights.find(tensor.name);
      std::vector<std::byte> bytes(tensor.bytes());
      if (info != nullptr && info->shape == tensor.shape && info->type == tensor.type) {
        weights.read(tensor.name, bytes);
        if (bytes == tensor.values(salt)) continue;
      }
      result.push_back(tensor.name);
    }
    return result;
  }

  tests::TemporaryFolder folder_;
  fs::path root_ = folder_.path();
};

TEST_F(ConvertTest, ReshardedIsTheSameState) {
  const Checkpoint from(save_step(7));
  for (const int ranks : {1, 2, 3, 5, 40}) {
    const Checkpoint to(reshard(from, root_ / std::to_string(ranks), ranks));
    to.verify();
    EXPECT_EQ(to.manifest().step, 7);
    EXPECT_EQ(to.manifest().world_size, ranks);
    EXPECT_THAT(to.manifest().files, SizeIs(::testing::Ge(2)));
    EXPECT_THAT(differences(to, some_tensors(), Layout::kGrid, 1, 4, 7), SizeIs(0));
    const Checkpoint back(reshard(to, root_ / fmt::format("{}_back", ranks), 1));
    EXPECT_EQ(tests::content_of(back.path() / "model.safetensors"),
              tests::content_of(from.path() / "model.safetensors"));
  }
}

TEST_F(ConvertTest, WeightsComeFromWhateverHoldsThem) {
  const fs::path checkpoint = save_step(3);
  save_step(2);
  EXPECT_THAT(wrong(Weights(checkpoint), 3), SizeIs(0));
  EXPECT_THAT(wrong(Weights(checkpoint, "optimizer"), 4), SizeIs(0));
  EXPECT_THAT(wrong(Weights(root_ / "run"), 3), SizeIs(0)) << "of a run the newest";
  EXPECT_THAT(wrong(Weights(root_ / "run" / "checkpoints"), 3), SizeIs(0));
  EXPECT_THAT(wrong(Weights(checkpoint / "model.safetensors"), 3), SizeIs(0));
  write_whole(Weights(checkpoint), root_ / "whole.safetensors");
  EXPECT_THAT(wrong(Weights(root_ / "whole.safetensors"), 3), SizeIs(0));
  EXPECT_EQ(tests::content_of(root_ / "whole.safetensors"), tests::content_of(checkpoint / "model.safetensors"));
  EXPECT_THROW(Weights(checkpoint, "strategy"), DataError);
  EXPECT_THROW(Weights(root_ / "nothing"), IoError);
  fs::create_directory(root_ / "empty");
  EXPECT_THROW(Weights(root_ / "empty"), IoError);
}

TEST_F(ConvertTest, AFolderOfHuggingFaceIsOneModel) {
  const fs::path folder = root_ / "hf";
  fs::create_directory(folder);
  std::string index;
  int i = 0;
  for (const auto& tensor : some_tensors()) {
    const auto values = tensor.values(3);
    const std::string name = fmt::format("model-{:05}.safetensors", ++i);
    format::write_safetensors(folder / name,
                              std::vector<format::TensorSource>{{tensor.name, tensor.type, tensor.shape, values}});
    index += fmt::format("{}\"{}\": \"{}\"", index.empty() ? "" : ", ", tensor.name, name);
  }
  folder_.write("hf/model.safetensors.index.json", "{\"weight_map\": {" + index + "}}");
  EXPECT_THAT(wrong(Weights(folder), 3), SizeIs(0));
  for (const char* bad : {"", "{}", "{\"weight_map\": {\"a\": \"../x\"}}", "{\"weight_map\": {\"a\": 1}}"}) {
    folder_.write("hf/model.safetensors.index.json", bad);
    EXPECT_THROW(Weights{folder}, DataError) << bad;
  }
}

TEST_F(ConvertTest, AFolderOfPyTorchFilesIsOneModel) {
  namespace pickled = tests::pickled;
  const fs::path folder = root_ / "hf";
  fs::create_directory(folder);
  const auto write = [&](const char* file, const std::vector<std::string>& names) {
    std::vector<std::pair<std::string, std::string>> items;
    for (const std::string& name : names) {
      items.emplace_back(name, pickled::tensor(pickled::storage("ShortStorage", "0", 2), {2}, {1}));
    }
    std::string values;
    for (const char c : {names.front().front(), '\0', '\1', '\0'}) values += c;
    folder_.write(std::string("hf/") + file, tests::checkpoint(pickled::whole(pickled::ordered(items)), {values}));
  };
  const auto index = [&](const std::string& map) {
    folder_.write("hf/pytorch_model.bin.index.json", "{\"weight_map\": {" + map + "}}");
  };
  write("pytorch_model-1.bin", {"a", "b"});
  write("pytorch_model-2.bin", {"c"});
  const std::string right = R"("a": "pytorch_model-1.bin", "b": "pytorch_model-1.bin", "c": "pytorch_model-2.bin")";
  index(right);
  const Weights weights(folder);
  ASSERT_THAT(weights.tensors(), SizeIs(3));
  for (const char* name : {"a", "c"}) {
    std::vector<std::byte> bytes(4);
    weights.read(name, bytes);
    EXPECT_EQ(bytes, (std::vector<std::byte>{std::byte(*name), std::byte{0}, std::byte{1}, std::byte{0}}));
  }
  EXPECT_THAT(Weights(folder / "pytorch_model.bin.index.json").tensors(), SizeIs(3));
  const auto refusal = [&] {
    try {
      const Weights refused(folder);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  index(R"("a": "pytorch_model-2.bin", "c": "pytorch_model-2.bin")");
  EXPECT_THAT(refusal(), HasSubstr("pytorch_model-2.bin has no tensor a"));
  index(right);
  write("pytorch_model-2.bin", {"c", "a"});
  EXPECT_THAT(refusal(), HasSubstr("a is in pytorch_model-1.bin and in pytorch_model-2.bin"));
}

TEST_F(ConvertTest, WhatCannotBeReadIsNamedAndCanBeLeftOut) {
  namespace pickled = tests::pickled;
  const std::string short_tensor = pickled::tensor(pickled::storage("ShortStorage", "0", 2), {2}, {1});
  const std::string state = pickled::ordered(
      {{"w", short_tensor}, {"z", pickled::tensor(pickled::storage("ComplexDoubleStorage", "0", 0), {0}, {1})}});
  const fs::path path = folder_.write(
      "x.pt",
      tests::checkpoint(
          pickled::whole(pickled::dict({{"model", state}, {"best", pickled::object("numpy", "float64", {"K\1"})}})),
          {"abcd"}));
  Weights weights(path);
  ASSERT_THAT(weights.tensors(), SizeIs(1));
  ASSERT_THAT(weights.unreadable(), SizeIs(1));
  ASSERT_THAT(weights.objects(), SizeIs(1));
  EXPECT_EQ(weights.objects()[0].what, "numpy.float64");
  weights.verify();
  std::vector<std::byte> bytes(4);
  weights.read("model.w", bytes);
  EXPECT_EQ(bytes[3], std::byte{'d'});
  const auto refusal = [](const auto& call) {
    try {
      call();
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal([&] { weights.read("model.z", bytes); }), HasSubstr("torch.ComplexDoubleStorage"));
  EXPECT_THAT(refusal([&] { write_whole(weights, root_ / "new.safetensors"); }),
              ::testing::AllOf(HasSubstr("model.z cannot be read"), HasSubstr("torch.ComplexDoubleStorage"),
                               HasSubstr("--skip model.z")));
  EXPECT_FALSE(fs::exists(root_ / "new.safetensors"));
  EXPECT_EQ(weights.unmatched({.only = {"model."}, .skip = {"nothing"}}), std::vector<std::string>{"nothing"});
  weights.select({.only = {"model."}, .skip = {"model.z"}});
  EXPECT_THAT(weights.unreadable(), SizeIs(0));
  EXPECT_THAT(weights.objects(), SizeIs(0));
  write_whole(weights, root_ / "new.safetensors");
  EXPECT_NE(Weights(root_ / "new.safetensors").find("model.w"), nullptr);
}

TEST_F(ConvertTest, AFileIsWhatItsContentSays) {
  namespace pickled = tests::pickled;
  const std::string tensor = pickled::tensor(pickled::storage("ShortStorage", "0", 2), {2}, {1});
  const std::string script = tests::script_archive(pickled::whole(pickled::script_module({{"w", tensor}})), {"abcd"});
  for (const char* name : {"a.pt", "a.safetensors", "a.ckpt", "a.pth.tar", "a"}) {
    EXPECT_EQ(Weights(folder_.write(name, script)).kind(), "a file of C++'s torch::save or of TorchScript") << name;
  }
  format::write_safetensors(root_ / "b.bin", {});
  EXPECT_EQ(Weights(root_ / "b.bin").kind(), "a safetensors file");
  for (const std::uint64_t length :
       {384U, 640U, 896U, 1152U, 1408U, 65920U}) {  // lengths whose first bytes look like those of a pickle
    std::string header = R"({"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}})";
    header.resize(length, ' ');
    const Weights weights(folder_.write("header.safetensors", tests::little_endian(length) + header + "abcd"));
    EXPECT_EQ(weights.kind(), "a safetensors file") << length;
    EXPECT_NE(weights.find("w"), nullptr) << length;
  }
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
  for (const char* name : {"c.pt", "c.safetensors", "c"}) {
    try {
      const Weights refused(folder_.write(name, pointer));
      ADD_FAILURE() << name;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Git LFS")) << name;
    }
  }
}

TEST_F(ConvertTest, AFolderWithoutWeightsSaysWhatItIs) {
  const auto refusal = [&](const char* name, const char* file) {
    fs::create_directory(root_ / name);
    folder_.write(std::string(name) + "/" + file, "x");
    try {
      const Weights refused(root_ / name);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal("one", "saved_model.pb"), HasSubstr("a SavedModel of TensorFlow"));
  EXPECT_THAT(refusal("two", ".metadata"), HasSubstr("dcp_to_torch"));
  EXPECT_THAT(refusal("three", "adapter.safetensors"), HasSubstr("adapter.safetensors"));
  EXPECT_THAT(refusal("four", "data.pkl"), HasSubstr("zip -r -0"));
}

TEST_F(ConvertTest, EveryTypeIsWrittenAsItWas) {
  std::vector<format::TensorSource> sources;
  const std::string data(64, '\x5a');
  for (int i = 0; i < 22; ++i) {
    const auto type = static_cast<format::TensorType>(i);
    const Shape shape = {8};
    const auto bytes = std::as_bytes(std::span(data.data(), static_cast<std::size_t>(*format::bytes_of(type, shape))));
    sources.push_back({std::string(format::name_of(type)), type, shape, bytes});
  }
  format::write_safetensors(root_ / "a.safetensors", sources, {{"format", "pt"}});
  write_whole(Weights(root_ / "a.safetensors"), root_ / "b.safetensors");
  EXPECT_EQ(tests::content_of(root_ / "a.safetensors"), tests::content_of(root_ / "b.safetensors"));
}

TEST_F(ConvertTest, NamesAreReplacedAtTheirBegin) {
  const Weights from(save_step(3));
  write_whole(from, root_ / "new.safetensors", {{"conv.", "features.0."}, {"fc.", ""}});
  const Weights to(root_ / "new.safetensors");
  EXPECT_NE(to.find("features.0.weight"), nullptr);
  EXPECT_NE(to.find("weight"), nullptr);
  EXPECT_NE(to.find("half"), nullptr);
  EXPECT_EQ(to.find("conv.weight"), nullptr);
  try {
    write_whole(from, root_ / "same.safetensors", {{"conv.", "fc."}});
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("fc.weight"));
  }
  EXPECT_THROW(write_whole(from, root_ / "none.safetensors", {{"nothing.", "x"}}), InvalidArgument);
  EXPECT_FALSE(fs::exists(root_ / "none.safetensors"));
  const std::string before = tests::content_of(root_ / "new.safetensors");
  EXPECT_THROW(write_whole(to, root_ / "new.safetensors"), InvalidArgument);
  EXPECT_EQ(tests::content_of(root_ / "new.safetensors"), before);
}

TEST_F(ConvertTest, TheNewestOfARunIsFoundWhereverItLies) {
  const auto save_at = [&](const char* directory, std::int64_t step) {
    const auto held = hold(some_tensors(), Layout::kFirst, 0, 1, static_cast<std::uint64_t>(step));
    return save(root_ / directory, {.step = step}, held.contents, 9);
  };
  save_at("run/checkpoints", 3);
  save_at("run", 2);
  EXPECT_EQ(find_checkpoint(root_ / "run").manifest().step, 3);
  const fs::path newest = save_at("run", 4);
  EXPECT_EQ(find_checkpoint(root_ / "run").manifest().step, 4);
  fs::resize_file(newest / "model.safetensors", 10);
  EXPECT_EQ(find_checkpoint(root_ / "run").manifest().step, 3);
}

}  // namespace
}  // namespace reigen::checkpoint
