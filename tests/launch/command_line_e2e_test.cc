// The words that `reigen` understands, and its errors for other words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "child_program.h"
#include "harness/folders.h"

namespace reigen::launch::command_line_e2e_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Ran reigen(std::vector<std::string> words) {
  words.insert(words.begin(), built("bin/reigen"));
  return run(words);
}

TEST(CommandLine, Help) {
  EXPECT_THAT(reigen({"--help"}).out, AllOf(HasSubstr("reigen run -n N"), HasSubstr("reigen train RECIPE")));
  EXPECT_EQ(reigen({"help"}).code, 0);
  EXPECT_THAT(reigen({"run", "--help"}).out,
              AllOf(HasSubstr("Usage: reigen run"), HasSubstr("--log-dir"), HasSubstr("--grace")));
  EXPECT_EQ(reigen({"help", "run"}).out, reigen({"run", "-h"}).out);
  EXPECT_THAT(reigen({"help", "environment"}).out,
              AllOf(HasSubstr("REIGEN_LOG"), HasSubstr("REIGEN_JOB"), HasSubstr("MASTER_PORT")));
  EXPECT_EQ(reigen({"help", "enviroment"}).code, 2);
}

TEST(CommandLine, Version) {
  const Ran ran = reigen({"version"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, ::testing::MatchesRegex("reigen [0-9]+\\.[0-9]+\\.[0-9]+\ncontainers: [^\n]+\n"));
  EXPECT_EQ(reigen({"--version"}).out, ran.out);
}

struct Wrong {
  std::vector<std::string> words;
  int code;
  std::string text;
};

TEST(CommandLine, WhatIsWrongIsSaidOnce) {
  const std::vector<Wrong> cases = {
      {{}, 2, "reigen run"},
      {{"rnu", "-n", "2", "true"}, 2, "did you mean `reigen run`?"},
      {{"xyzzy"}, 2, "unknown command"},
      {{"run"}, 2, "no program given"},
      {{"run", "-n", "2"}, 2, "no program given"},
      {{"run", "-n", "2", "--"}, 2, "no program given"},
      {{"run", "-n"}, 2, "-n"},
      {{"run", "-n", "abc", "true"}, 2, "got: -n abc"},
      {{"run", "-n", "2.5", "true"}, 2, "got: -n 2.5"},
      {{"run", "-np", "2", "true"}, 2, "the number of ranks is -n N"},
      {{"run", "-n", "0", "true"}, 78, "got: -n 0   expected: at least 1"},
      {{"run", "-n", "-3", "true"}, 78, "got: -n -3"},
      {{"run", "-n", "99999999999999999999", "true"}, 78, "out of range"},
      {{"run", "-n", "70000", "true"}, 78, "70000"},
      {{"run", "--logdir", "x", "true"}, 2, "did you mean `--log-dir`?"},
      {{"run", "--zzz", "true"}, 2, "unknown option `--zzz`"},
      {{"run", "--grace", "x", "true"}, 2, "--grace"},
      {{"run", "--grace", "-1", "true"}, 78, "--grace"},
      {{"run", "--grace", "nan", "true"}, 78, "--grace"},
      {{"run", "--threads", "-1", "true"}, 78, "threads"},
      {{"run", "--threads", "x", "true"}, 2, "--threads"},
      {{"run", "--prefix", "maybe", "true"}, 78, "auto, always or none"},
      {{"run", "--memory-per-rank", "lots", "true"}, 78, "lots"},
      {{"train", "mnist", "-n"}, 2, "-n needs a number"},
      {{"train", "mnist", "-n", "0"}, 78, "-n 0"},
      {{"train", "mnist", "-n", "x"}, 2, "-n x"},
  };
  for (const Wrong& wrong : cases) {
    const Ran ran = reigen(wrong.words);
    SCOPED_TRACE(::testing::PrintToString(wrong.words));
    EXPECT_EQ(ran.code, wrong.code);
    EXPECT_THAT(ran.err, HasSubstr(wrong.text));
    EXPECT_EQ(ran.out, "");
  }
}

TEST(CommandLine, ALevelOfTheLogThatIsNoneIsSaidOnce) {
  const Ran ran = run(reigen_run({"-n", "2", "true"}), {"REIGEN_LOG=verbose"});
  EXPECT_EQ(ran.code, 0);
  const std::string text = "REIGEN_LOG=verbose is no level: taken for warning; it may be error, warning, info or debug";
  EXPECT_THAT(ran.err, HasSubstr(text));
  EXPECT_EQ(ran.err.find(text), ran.err.rfind(text));
}

TEST(CommandLine, EverySpellingOfN) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"-n", "3"},
                                                {"-n3"},
                                                {"--nproc-per-node", "3"},
                                                {"--nproc-per-node=3"},
                                                {"--nproc_per_node=3"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--prefix", "none", "sh", "-c", "echo $WORLD_SIZE"});
    EXPECT_EQ(run(reigen_run(all)).out, "3\n3\n3\n") << ::testing::PrintToString(words);
  }
  EXPECT_EQ(run(reigen_run({"-n", "cpu", "true"})).code, 0);
}

TEST(CommandLine, HalfOfAnotherLaunchersVariablesIsNoJob) {
  EXPECT_EQ(run(reigen_run({"-n", "2", "true"}), {"WORLD_SIZE=4"}).code, 0);
  EXPECT_EQ(run(reigen_run({"-n", "2", "true"}), {"RANK=0", "WORLD_SIZE=2"}).code, 0);
}

TEST(CommandLine, TheProgramsWordsAreLeftAlone) {
  const std::string script = "printf '%s|' \"$@\"; echo";
  EXPECT_EQ(run(reigen_run({"sh", "-c", script, "x", "-n", "5", "--help", "--", "a b", ""})).out,
            "-n|5|--help|--|a b||\n");
  EXPECT_EQ(run(reigen_run({"-n", "1", "--", "sh", "-c", script, "x", "--", "-n"})).out, "--|-n|\n");
}

// A folder with `reigen` and a reigen-train that prints its arguments.
class Train : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "reigen_train_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::copy_file(built("bin/reigen"), folder_ + "/reigen");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void add_train_program() const {
    std::ofstream(folder_ + "/reigen-train") << "#!/bin/sh\necho \"${WORLD_SIZE-alone} $*\"\n";
    ::chmod((folder_ + "/reigen-train").c_str(), 0755);
  }
  Ran train(std::vector<std::string> words) const {
    words.insert(words.begin(), {folder_ + "/reigen", "train"});
    return run(words, {"WORLD_SIZE"});
  }
  std::string folder_;
};

TEST_F(Train, WithoutLibTorchItSaysSo) {
  const Ran ran = train({"mnist", "-n", "2"});
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("LibTorch"), HasSubstr(folder_ + "/reigen-train"), HasSubstr("fix:")));
}

TEST_F(Train, OnlyTheNumberOfRanksIsTaken) {
  add_train_program();
  EXPECT_EQ(train({"mnist", "-n", "2", "--train.epochs", "3"}).out,
            "2 mnist --train.epochs 3\n2 mnist --train.epochs 3\n");
  EXPECT_EQ(train({"-n2", "mnist", "--x=1"}).out, "2 mnist --x=1\n2 mnist --x=1\n");
  EXPECT_EQ(train({"mnist"}).out, "1 mnist\n");
  EXPECT_EQ(train({"mnist", "--a", "--", "-n", "2"}).out, "1 mnist --a -- -n 2\n");
}

TEST_F(Train, RanksAsThreadsAreOneProcess) {
  add_train_program();
  EXPECT_EQ(train({"mnist", "-n", "4", "--run.ranks", "threads"}).out, "1 mnist -n 4 --run.ranks threads\n");
  EXPECT_EQ(train({"mnist", "--run.ranks=threads"}).out, "1 mnist -n 1 --run.ranks=threads\n");
}

TEST_F(Train, QuestionsAreAnsweredByOneProcess) {
  add_train_program();
  EXPECT_EQ(train({"mnist", "-n", "4", "--help"}).out, "alone mnist --help\n");
  EXPECT_EQ(train({"mnist", "-n", "4", "--print-config"}).out, "alone mnist --print-config\n");
}

}  // namespace
}  // namespace reigen::launch::command_line_e2e_test
