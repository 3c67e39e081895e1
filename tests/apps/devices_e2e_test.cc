// reigen devices: on a machine without a GPU, and over the stand-in for CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;

Ran devices(std::vector<std::string> words, const std::vector<std::string>& environment = {}) {
  words.insert(words.begin(), {built("bin/reigen"), "devices"});
  return launch::run(words, environment);
}

TEST(Devices, AnArgumentIsRefused) {
  EXPECT_THAT(devices({"--help"}).out, HasSubstr("usage: reigen devices"));
  const Ran flag = devices({"--helb"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("did you mean `--help`?"));
  const Ran word = devices({"cuda:1"});
  EXPECT_EQ(word.code, 2);
  EXPECT_THAT(word.err, HasSubstr("cuda:1"));
}

#ifdef HAS_TRAIN
TEST(Devices, ATrainingWithoutAGpuEndsBeforeItBegins) {
  const Ran ran =
      launch::run_training({built("bin/reigen"), "train", "mlp", "--train.device", "cuda"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("error: "), HasSubstr("fix: ")));
}
#endif

#ifdef STAND_IN
TEST(Devices, ADeviceThatIsNotVisibleIsRefused) {
  const Ran ran = launch::run({built("bin/reigen"), "bench", "all_reduce", "-n", "1", "--device", "cuda:9"},
                              {"LD_LIBRARY_PATH=" + built(STAND_IN)});
  EXPECT_EQ(ran.code, 78);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("GPU 9 is not visible"), HasSubstr("8 visible GPUs")));
}

// A folder of libraries in which some of those of a machine with GPUs are missing or are something else.
class PartsOfGpus : public ::testing::Test {
 protected:
  PartsOfGpus() {
    for (const char* name : {"libcuda.so.1", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libnccl.so.2"})
      link(name, name);
  }
  void link(const std::string& name, const std::string& to) const {
    std::filesystem::create_symlink(built(STAND_IN) + "/" + to, folder_.path() / name);
  }
  Ran run(std::vector<std::string> words) const {
    words.insert(words.begin(), built("bin/reigen"));
    return launch::run(words, {"LD_LIBRARY_PATH=" + folder_.path().string()});
  }
  Ran bench() const { return run({"bench", "all_reduce", "-n", "1", "--device", "cuda", "-b", "8", "-e", "64"}); }

  tests::TemporaryFolder folder_;
};

TEST_F(PartsOfGpus, APluginThatIsNoLibraryIsNamed) {
  std::ofstream(folder_.path() / "libreigen_cuda.so") << "not a library";
  const Ran ran = bench();
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("plug-in of kernels"), HasSubstr("libreigen_cuda.so"), HasSubstr("fix: ")));
}

TEST_F(PartsOfGpus, APluginOfAnotherVersionIsNamed) {
  link("libreigen_cuda.so", "libreigen_cuda_faults.so");  // it has no version
  const Ran ran = bench();
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("plug-in of kernels"), HasSubstr("libreigen_cuda.so"), HasSubstr("fix: ")));
}

#ifdef HAS_TRAIN
TEST_F(PartsOfGpus, ALibTorchWithoutItsPartForGpusIsNamed) {
  link("libreigen_cuda.so", "libreigen_cuda.so");
  const Ran ran = launch::run_training({built("bin/reigen"), "train", "mlp", "--train.device", "cuda"},
                                       {"LD_LIBRARY_PATH=" + folder_.path().string()});
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("LibTorch's part for GPUs"), HasSubstr("libtorch_cuda.so"),
                             HasSubstr("pip install torch"), HasSubstr("fix: ")));
}
#endif

TEST(Devices, EveryGpuIsListed) {
  const Ran ran = devices({}, {"LD_LIBRARY_PATH=" + built(STAND_IN)});
  EXPECT_THAT(ran.out, AllOf(HasSubstr("CUDA runtime  13.0"), HasSubstr("runs CUDA up to 13.1"),
                             HasSubstr("0    Stand-in  0000:00:00.0  9.0         16 GiB  4           shared  1, 2, 3"),
                             HasSubstr("7    Stand-in  0000:07:00.0")));
}

TEST(Devices, RanksThatAreProcessesShareTheOnlyGpu) {
  const Ran ran = launch::run({built("bin/reigen"), "bench", "all_reduce", "-n", "3", "--device", "cuda", "--check",
                               "-b", "64", "-e", "64", "--iters", "2"},
                              {"LD_LIBRARY_PATH=" + built(STAND_IN), "STAND_IN_DEVICES=1"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("Out of bounds values : 0 OK"));
}

TEST(Devices, WhatIsMissingIsNamedWithItsCure) {
  const Ran ran = devices({}, {"LD_LIBRARY_PATH=" + built(STAND_IN), "STAND_IN_DEVICES=0", "CUDA_VISIBLE_DEVICES=9"});
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("missing: no GPU is visible"), HasSubstr("CUDA_VISIBLE_DEVICES=\"9\""),
                             HasSubstr("--gpus all")));
}
#endif

}  // namespace
}  // namespace reigen
