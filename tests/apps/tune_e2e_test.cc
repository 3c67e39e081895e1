// reigen tune measures algorithms, stores the result and explains it. Groups use the stored result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Tune : public ::testing::Test {
 protected:
  Tune() {
    std::string folder = testing::TempDir() + "reigen_tune_XXXXXX";
    folder_ = ::mkdtemp(folder.data());
  }
  ~Tune() override { std::filesystem::remove_all(folder_); }

  Ran reigen(std::vector<std::string> words) const {
    words.insert(words.begin(), built("bin/reigen"));
    return launch::run(words, {"WORLD_SIZE", "RANK", "XDG_CACHE_HOME=" + folder_.string()});
  }
  std::filesystem::path cache(const std::string& backend) const {
    return folder_ / "reigen" / ("tuning-" + backend + "-2.txt");
  }
  void write(const std::string& backend, const std::string& lines) const {
    std::filesystem::create_directories(folder_ / "reigen");
    std::ofstream(cache(backend)) << "reigen tuning 1\nhost elsewhere\nbackend " << backend << "\nranks 2\n" << lines;
  }
  std::vector<std::string> algorithms_of(std::vector<std::string> words) const {
    const std::string file = folder_ / "rows.json";
    words.insert(words.end(), {"-b", "1K", "-e", "64K", "-f", "64", "--iters", "3", "--check", "--json", file});
    const Ran ran = reigen(words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::vector<std::string> algorithms;
    for (const auto& row : nlohmann::json::parse(std::ifstream(file))) algorithms.push_back(row["algorithm"]);
    return algorithms;
  }

  std::filesystem::path folder_;
};

TEST_F(Tune, WhatItFindsIsKeptShownAndTaken) {
  for (const std::string backend : {"shared_memory", "tcp"}) {
    SCOPED_TRACE(backend);
    const Ran tuned = reigen({"tune", "-n", "2", "--backend", backend, "--seconds", "0.1"});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    EXPECT_THAT(tuned.out, AllOf(HasSubstr("alpha (us)"), HasSubstr("# written to " + cache(backend).string())));
    ASSERT_TRUE(std::filesystem::exists(cache(backend)));
    const Ran shown = reigen({"tune", "-n", "2", "--backend", backend, "--explain"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, AllOf(HasSubstr("from " + cache(backend).string()), HasSubstr("# rules all_reduce:")));
    const Ran bench = reigen({"bench", "all_reduce", "--backend", backend, "--algorithm", "tuned", "-b", "256", "-e",
                              "64K", "-f", "256", "--iters", "3", "--check"});
    EXPECT_EQ(bench.code, 0) << bench.err;
    const Ran why = reigen({"bench", "all_reduce", "--backend", backend, "--algorithm", "tuned", "--explain"});
    EXPECT_THAT(why.out, HasSubstr("tuned all_reduce:"));
  }
}

TEST_F(Tune, GroupsTakeTheRulesOfTheFile) {
  write("shared_memory", "rules all_reduce:two_shot@>2K\nend\n");
  write("tcp", "rules all_reduce:recursive_doubling@<2K,all_reduce:ring\nend\n");
  EXPECT_THAT(algorithms_of({"bench", "all_reduce", "--algorithm", "tuned"}),
              testing::ElementsAre("one_shot", "two_shot"));
  EXPECT_THAT(algorithms_of({"bench", "all_reduce", "--backend", "tcp", "--algorithm", "tuned"}),
              testing::ElementsAre("recursive_doubling", "ring"));
  const Ran ran = reigen({"bench", "all_reduce", "--algorithm", "tuned", "-e", "4", "--iters", "3"});
  EXPECT_THAT(ran.err, HasSubstr("measured on host elsewhere"));
}

TEST_F(Tune, WithoutAFileItIsSaidHowToGetOne) {
  const Ran ran = reigen({"bench", "all_reduce", "--backend", "tcp", "--algorithm", "tuned"});
  EXPECT_EQ(ran.code, 78);
  EXPECT_THAT(ran.err, HasSubstr("reigen tune -n 2 --backend tcp"));
  const Ran why = reigen({"bench", "all_reduce", "--backend", "tcp", "--algorithm", "tuned", "--explain"});
  EXPECT_EQ(why.code, 78);
  EXPECT_THAT(why.err, HasSubstr("reigen tune -n 2 --backend tcp"));
  const Ran shown = reigen({"tune", "--backend", "tcp", "--explain"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.out, AllOf(HasSubstr("# built in"), HasSubstr("up to 16K"), HasSubstr("above 16K")));
}

TEST_F(Tune, AFileThatCannotBeWrittenIsSaidBeforeAnythingIsMeasured) {
  std::ofstream(folder_ / "reigen") << "in the way";
  const Ran ran = reigen({"tune", "-n", "2", "--seconds", "3600"});
  EXPECT_EQ(ran.code, 74);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("cannot make the folder"), HasSubstr("fix: set XDG_CACHE_HOME")));
  EXPECT_EQ(ran.out, "");
}

TEST_F(Tune, ADamagedFileIsNamedWithItsLine) {
  write("tcp", "rules all_reduce:flop\nend\n");
  const std::string place = cache("tcp").string() + ":5: ";
  const Ran ran = reigen({"bench", "all_reduce", "--backend", "tcp", "--algorithm", "tuned"});
  EXPECT_EQ(ran.code, 65);
  EXPECT_THAT(ran.err, AllOf(HasSubstr(place), HasSubstr("flop")));
  EXPECT_EQ(ran.err.find(place), ran.err.rfind(place)) << ran.err;  // reported once
  const Ran shown = reigen({"tune", "--backend", "tcp", "--explain"});
  EXPECT_EQ(shown.code, 65);
  EXPECT_THAT(shown.err, HasSubstr(place));
  write("tcp", "rules all_reduce:flat\n");
  EXPECT_THAT(reigen({"tune", "--backend", "tcp", "--explain"}).err, HasSubstr("ends too soon"));
}

TEST_F(Tune, WhatIsWrongIsSaid) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"tune", "--bckend", "tcp"}, "did you mean `--backend`?"},
      {{"tune", "--backend", "mpi"}, "expected: shared_memory, tcp"},
      {{"tune", "-n", "1"}, "at least two ranks"},
      {{"tune", "--seconds", "0"}, "--seconds is out of range"},
      {{"tune", "more"}, "reigen tune --help"},
  };
  for (const auto& [words, text] : cases) {
    const Ran ran = reigen(words);
    SCOPED_TRACE(testing::PrintToString(words));
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.err, HasSubstr(text));
    EXPECT_EQ(ran.out, "");
  }
  EXPECT_THAT(reigen({"tune", "--help"}).out, HasSubstr("--explain"));
}

}  // namespace
}  // namespace reigen
