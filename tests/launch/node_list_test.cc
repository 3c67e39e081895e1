#include "launch/meet/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/error.h"

namespace reigen::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> nodes(const std::string& text) { return expand_node_list("SLURM_STEP_NODELIST", text); }
std::vector<int> tasks(const std::string& text) { return expand_tasks_per_node("SLURM_STEP_TASKS_PER_NODE", text); }

TEST(NodeList, PlainNames) {
  EXPECT_THAT(nodes("a"), ElementsAre("a"));
  EXPECT_THAT(nodes("a,b-2,c.d"), ElementsAre("a", "b-2", "c.d"));
}

TEST(NodeList, RangesKeepZerosInFront) {
  EXPECT_THAT(nodes("a[01-03,7],b1"), ElementsAre("a01", "a02", "a03", "a7", "b1"));
  EXPECT_THAT(nodes("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(nodes("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
}

TEST(NodeList, SeveralBracketsMultiply) {
  EXPECT_THAT(nodes("r[1-2]n[01,03]-ib"), ElementsAre("r1n01-ib", "r1n03-ib", "r2n01-ib", "r2n03-ib"));
}

TEST(NodeList, RefusesWhatItCannotReadAndNamesTheVariable) {
  for (const char* text : {"", ",", "a,", "a[1-2", "a1-2]", "a[[1]]", "a[]", "a[1-]", "a[x]", "a[3-1]",
                           "a[1-99999999999]", "a[1-1000]b[1-1000]c[1-1000]", "a[99999999999999999999]"}) {
    try {
      nodes(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("SLURM_STEP_NODELIST=") + text));
    }
  }
}

TEST(TasksPerNode, CountsAndRepetitions) {
  EXPECT_THAT(tasks("4"), ElementsAre(4));
  EXPECT_THAT(tasks("2(x3),1"), ElementsAre(2, 2, 2, 1));
}

TEST(TasksPerNode, RefusesWhatItCannotRead) {
  for (const char* text : {"", "x", "2(x3", "2(x)", "0", "2(x0)", "2(x99999999)", "-1"}) {
    EXPECT_THROW(tasks(text), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace reigen::launch
