#include "comm/algorithm_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& rules) {
  try {
    AlgorithmChoice choice(rules);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "it was taken";
}

TEST(AlgorithmChoice, WithoutRulesTheUsualOneIsTaken) {
  const AlgorithmChoice choice("");
  EXPECT_EQ(choice.choose(OperationKind::kAllReduce, 100, 4).name, "flat");
  EXPECT_EQ(choice.choose(OperationKind::kAllReduce, 100 * kMiB, 4).name, "direct");
  EXPECT_EQ(choice.choose(OperationKind::kBroadcast, 100, 4).name, "tree");
  EXPECT_EQ(choice.choose(OperationKind::kBroadcast, 100 * kMiB, 4).name, "ring");
}

TEST(AlgorithmChoice, TheFirstRuleThatFitsWins) {
  const AlgorithmChoice choice("all_reduce:ring@>1M,all_reduce:recursive_doubling@<1K,all_reduce:flat,broadcast:flat");
  EXPECT_EQ(choice.choose(OperationKind::kAllReduce, kMiB + 1, 4).name, "ring");
  EXPECT_EQ(choice.choose(OperationKind::kAllReduce, kMiB, 4).name, "flat");
  EXPECT_EQ(choice.choose(OperationKind::kAllReduce, kKiB - 1, 4).name, "recursive_doubling");
  EXPECT_EQ(choice.choose(OperationKind::kBroadcast, 100 * kMiB, 4).name, "flat");
  EXPECT_EQ(choice.choose(OperationKind::kReduce, 100 * kMiB, 4).name, "direct");
}

TEST(AlgorithmChoice, WhatIsUnknownIsRefusedWithAList) {
  EXPECT_THAT(refusal("allreduce:ring"), HasSubstr("all_reduce, reduce_scatter"));
  EXPECT_THAT(refusal("all_reduce:rings"), HasSubstr("direct, flat, ring"));
  EXPECT_THAT(refusal("broadcast:halving_doubling"), HasSubstr("tree, ring, flat"));
  EXPECT_THAT(refusal("all_reduce"), HasSubstr("OPERATION:ALGORITHM"));
  EXPECT_THAT(refusal("all_reduce:ring@1M"), HasSubstr("@>1M"));
  EXPECT_THAT(refusal("all_reduce:ring@>much"), HasSubstr("much"));
  EXPECT_THAT(refusal("all_reduce:ring,,"), HasSubstr("OPERATION:ALGORITHM"));
}

}  // namespace
}  // namespace reigen::comm
