// reigen checkpoint as a user calls it: its output, the files that it writes and its exit codes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "checkpoint/layouts.h"
#include "format/pt_writer.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"
#include "reigen/checkpoint/convert.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_checkpoint::Layout;

class CheckpointCommand : public ::testing::Test {
 protected:
  Ran reigen(std::vector<std::string> words) const {
    words.insert(words.begin(), {built("bin/reigen"), "checkpoint"});
    return launch::run(words, {"WORLD_SIZE", "RANK"});
  }
  // Saves a checkpoint of one rank. With `has_average` it also has an average of the weight "conv.weight".
  fs::path save(const std::string& run, std::uint64_t salt, bool has_average = false) const {
    std::vector<testing_checkpoint::Tensor> tensors = testing_checkpoint::some_tensors();
    auto held = testing_checkpoint::hold(tensors, Layout::kFirst, 0, 1, salt);
    const testing_checkpoint::Tensor average{"conv.weight.ema", format::TensorType::kF32, {7, 3, 3, 3}};
    const std::vector<std::byte> values = average.values(salt);
    if (has_average) {
      held.contents["optimizer"].push_back(
          {average.name, average.type, average.shape, layout::whole(average.shape), values});
    }
    return checkpoint::save(root_ / run / "checkpoints", {.step = static_cast<std::int64_t>(salt)}, held.contents, 3);
  }
  std::string content(const fs::path& path) const { return tests::content_of(path); }

  tests::TemporaryFolder folder_;
  fs::path root_ = folder_.path();
};

TEST_F(CheckpointCommand, ShowsWhatIsThere) {
  save("run", 7);
  const Ran ran = reigen({"inspect", root_ / "run", "--tensors"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("a checkpoint of step 7"), HasSubstr("model: 8 tensors"),
                             HasSubstr("conv.weight"), HasSubstr("[7, 3, 3, 3]")));
  EXPECT_EQ(reigen({"inspect", root_ / "nowhere"}).code, 66);
  const Ran unknown = reigen({"inspekt", root_ / "run"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean `reigen checkpoint inspect`?"));
}

TEST_F(CheckpointCommand, NamesDamageAndEndsWith65) {
  const fs::path step = save("run", 7);
  EXPECT_THAT(reigen({"verify", root_ / "run"}).out, HasSubstr("whole"));
  {
    std::fstream file(step / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x5a');
  }
  const Ran ran = reigen({"verify", root_ / "run"});
  EXPECT_EQ(ran.code, 65);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("model.safetensors is damaged"), HasSubstr("expected")));
  EXPECT_EQ(reigen({"consolidate", root_ / "run", root_ / "whole.safetensors"}).code, 65);
  EXPECT_FALSE(fs::exists(root_ / "whole.safetensors"));
}

// A finished run has a file of weights beside its checkpoints. The file may be whole while a checkpoint is damaged.
TEST_F(CheckpointCommand, AFileOfWeightsBesideThemHidesNoDamage) {
  const fs::path step = save("run", 7);
  fs::copy_file(step / "model.safetensors", root_ / "run" / "model.safetensors");
  EXPECT_EQ(reigen({"verify", root_ / "run"}).code, 0);
  EXPECT_EQ(reigen({"verify", root_ / "run" / "model.safetensors"}).code, 0);
  {
    std::fstream file(step / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x5a');
  }
  const Ran damaged = reigen({"verify", root_ / "run"});
  EXPECT_EQ(damaged.code, 65);
  EXPECT_THAT(damaged.out, HasSubstr("model.safetensors is damaged"));
  fs::remove(step / "manifest.json");
  EXPECT_NE(reigen({"verify", step}).code, 0);
}

TEST_F(CheckpointCommand, TellsWhatDiffers) {
  save("a", 7);
  save("b", 8);
  EXPECT_EQ(reigen({"diff", root_ / "a", root_ / "a"}).code, 0);
  const Ran ran = reigen({"diff", root_ / "a", root_ / "b"});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("conv.weight"));
}

TEST_F(CheckpointCommand, WritesOneFileAndAnyNumberOfShares) {
  const fs::path step = save("run", 7);
  const Ran three = reigen({"reshard", root_ / "run", root_ / "three", "--ranks", "3"});
  EXPECT_EQ(three.code, 0) << three.err;
  EXPECT_EQ(reigen({"consolidate", root_ / "three", root_ / "whole.safetensors"}).code, 0);
  EXPECT_EQ(content(root_ / "whole.safetensors"), content(step / "model.safetensors"));
  EXPECT_EQ(reigen({"diff", root_ / "three", root_ / "whole.safetensors"}).code, 0);
  EXPECT_EQ(reigen({"import", root_ / "three", root_ / "new.safetensors", "--rename", "conv.=features.0."}).code, 0);
  EXPECT_NE(checkpoint::Weights(root_ / "new.safetensors").find("features.0.weight"), nullptr);
  EXPECT_EQ(reigen({"reshard", root_ / "run", root_ / "none", "--ranks", "0"}).code, 2);
}

// {'model': {'w': ..., 'z': a tensor of complex doubles}, 'best': a number of NumPy}
std::string mixed_checkpoint(const std::string& values) {
  namespace pickled = tests::pickled;
  const std::string state = pickled::ordered(
      {{"w", pickled::typed_tensor(pickled::storage("UntypedStorage", "0", 4), {4}, {1}, "float8_e4m3fn")},
       {"z", pickled::tensor(pickled::storage("ComplexDoubleStorage", "1", 1), {1}, {1})}});
  const std::string number = pickled::object("numpy._core.multiarray", "scalar", {"K\1"});
  return tests::checkpoint(pickled::whole(pickled::dict({{"model", state}, {"best", number}})),
                           {values, std::string(16, 'x')});
}

TEST_F(CheckpointCommand, ReadsWhatLiesBesideWhatItCannotRead) {
  const fs::path a = folder_.write("a.pt", mixed_checkpoint("\x38\x38\x38\x38"));
  const fs::path b = folder_.write("b.pt", mixed_checkpoint("\x38\x40\x38\x38"));  // the numbers 1 and 2 in fp8
  const Ran shown = reigen({"inspect", a, "--tensors"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("F8_E4M3 [4]"), HasSubstr("numpy._core.multiarray.scalar (not read)"),
                               HasSubstr("torch.ComplexDoubleStorage"), HasSubstr("1 tensor cannot be read")));
  const Ran refused = reigen({"diff", a, b});
  EXPECT_EQ(refused.code, 65);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("model.z cannot be read"), HasSubstr("--skip model.z")));
  const Ran different = reigen({"diff", a, b, "--skip", "model.z"});
  EXPECT_EQ(different.code, 1) << different.err;
  EXPECT_THAT(different.out, HasSubstr("1 of 4 elements, by 1 at most"));
  EXPECT_EQ(reigen({"import", a, root_ / "no.safetensors"}).code, 65);
  const Ran imported = reigen({"import", a, root_ / "new.safetensors", "--skip", "model.z"});
  EXPECT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("left out: best"));
  EXPECT_EQ(reigen({"diff", a, root_ / "new.safetensors", "--only", "model.w"}).code, 0);
  EXPECT_EQ(reigen({"verify", a, root_ / "new.safetensors"}).code, 0);
  EXPECT_EQ(reigen({"import", a, root_ / "no.safetensors", "--only", "nothing"}).code, 78);
  std::string damaged = mixed_checkpoint("\x38\x38\x38\x38");
  damaged[damaged.find("8888")] = '9';
  EXPECT_EQ(reigen({"verify", folder_.write("damaged.pt", damaged)}).code, 65);
}

TEST_F(CheckpointCommand, SaysWhatIsNoFileOfWeights) {
  const fs::path pointer =
      folder_.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n");
  const Ran ran = reigen({"inspect", pointer});
  EXPECT_EQ(ran.code, 65);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("a pointer of Git LFS"), HasSubstr("git lfs pull")));
}

TEST_F(CheckpointCommand, WritesTheAverageOfTheWeights) {
  save("plain", 7);
  save("run", 7, true);
  const Ran ran = reigen({"consolidate", root_ / "run", root_ / "average.safetensors", "--average"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const checkpoint::Weights weights(root_ / "average.safetensors");
  for (const auto& tensor : testing_checkpoint::some_tensors()) {
    testing_checkpoint::Tensor source = tensor;
    if (tensor.name == "conv.weight") source.name += ".ema";
    std::vector<std::byte> bytes(tensor.bytes());
    weights.read(tensor.name, bytes);
    EXPECT_EQ(bytes, source.values(7)) << tensor.name;
  }
  const Ran plain = reigen({"consolidate", root_ / "plain", root_ / "no.safetensors", "--average"});
  EXPECT_EQ(plain.code, 65);
  EXPECT_THAT(plain.err, AllOf(HasSubstr("has no average of its weights"), HasSubstr("--optim.ema_decay")));
}

}  // namespace
}  // namespace reigen
