// reigen devices: on a machine without a GPU, and over the stand-in for CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(Devices, EveryGpuIsListed) {
  const Ran ran = devices({}, {"LD_LIBRARY_PATH=" + built(STAND_IN)});
  EXPECT_THAT(ran.out, AllOf(HasSubstr("CUDA runtime  13.0"), HasSubstr("runs CUDA up to 13.1"),
                             HasSubstr("0    Stand-in  0000:00:00.0  9.0         16 GiB  4           shared  1, 2, 3"),
                             HasSubstr("7    Stand-in  0000:07:00.0")));
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
