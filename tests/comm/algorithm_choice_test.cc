#include "comm/call/algorithm_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/backends.h"
#include "comm/shared_memory/ways.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& rules) {
  try {
    AlgorithmChoice choice(rules, Family::kTcp);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "it was taken";
}

TEST(AlgorithmChoice, WithoutRulesTheUsualOneIsTaken) {
  const AlgorithmChoice choice("", Family::kTcp);
  EXPECT_EQ(choose_schedule(choice, OperationKind::kAllReduce, 100, 4).name, "flat");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kAllReduce, 100 * kMiB, 4).name, "direct");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kBroadcast, 100, 4).name, "tree");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kBroadcast, 100 * kMiB, 4).name, "ring");
}

TEST(AlgorithmChoice, TheFirstRuleThatFitsWins) {
  const AlgorithmChoice choice("all_reduce:ring@>1M,all_reduce:recursive_doubling@<1K,all_reduce:flat,broadcast:flat",
                               Family::kTcp);
  EXPECT_EQ(choose_schedule(choice, OperationKind::kAllReduce, kMiB + 1, 4).name, "ring");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kAllReduce, kMiB, 4).name, "flat");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kAllReduce, kKiB - 1, 4).name, "recursive_doubling");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kBroadcast, 100 * kMiB, 4).name, "flat");
  EXPECT_EQ(choose_schedule(choice, OperationKind::kReduce, 100 * kMiB, 4).name, "direct");
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

TEST(AlgorithmChoice, EachFamilyTakesItsOwnWords) {
  const std::string rules = "all_reduce:two_shot@>1M,all_reduce:ring,barrier:one_shot";
  const AlgorithmChoice shared(rules, Family::kSharedMemory);
  const AlgorithmChoice tcp(rules, Family::kTcp);
  EXPECT_EQ(shared.find(OperationKind::kAllReduce, 2 * kMiB)->text, "all_reduce:two_shot@>1M");
  EXPECT_EQ(shared.find(OperationKind::kAllReduce, kMiB), nullptr);
  EXPECT_EQ(choose_schedule(tcp, OperationKind::kAllReduce, 2 * kMiB, 4).name, "ring");
  EXPECT_EQ(tcp.find(OperationKind::kBarrier, 0), nullptr);
}

TEST(AlgorithmChoice, ARuleWhoseAlgorithmCannotRunIsPassedOver) {
  using shared_memory::choose_way;
  using shared_memory::Way;
  const AlgorithmChoice choice("all_reduce:one_shot,all_reduce:two_shot@<1M,broadcast:one_shot", Family::kSharedMemory);
  constexpr shared_memory::Carrying kCarried{.possible = true, .usual = true};
  constexpr shared_memory::Carrying kTooLarge{};
  EXPECT_EQ(choose_way(choice, OperationKind::kAllReduce, 100, kCarried), Way::kOneShot);
  EXPECT_EQ(choose_way(choice, OperationKind::kAllReduce, 3000, kTooLarge), Way::kTwoShot);
  EXPECT_EQ(choose_way(choice, OperationKind::kAllReduce, kMiB, kTooLarge), Way::kFused);
  EXPECT_EQ(choose_way(choice, OperationKind::kBroadcast, 3000, kTooLarge), Way::kFused);
  EXPECT_EQ(choose_way(choice, OperationKind::kGather, 100, kCarried), Way::kOneShot);
  EXPECT_EQ(choose_way(choice, OperationKind::kGather, 9000, {.possible = true, .usual = false}), Way::kFused);
  EXPECT_EQ(choose_way(choice, OperationKind::kBroadcast, 9000, {.possible = true, .usual = false}), Way::kOneShot);
}

TEST(AlgorithmChoice, ABackendIsCheckedAgainstWhatItHas) {
  EXPECT_NO_THROW(check_algorithms("all_reduce:two_shot,all_reduce:ring", find_backend("auto").families));
  EXPECT_NO_THROW(check_algorithms("tuned", find_backend("tcp").families));
  const auto refused = [](const std::string& rules, const std::string& backend) -> std::string {
    try {
      check_algorithms(rules, find_backend(backend).families);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "it was taken";
  };
  EXPECT_THAT(refused("all_reduce:ring", "shared_memory"), HasSubstr("expected: one_shot, fused, two_shot"));
  EXPECT_THAT(refused("all_reduce:two_shot", "tcp"), HasSubstr("direct, flat, ring"));
  EXPECT_THAT(refused("all_reduce:magic", "hierarchical"),
              HasSubstr("(tcp); one_shot, fused, two_shot (shared_memory)"));
  EXPECT_THAT(refused("all_reduce:ring@<0", "tcp"), HasSubstr("fits no size"));
}

TEST(AlgorithmChoice, SizesAreThoseOfTheWholeArray) {
  Call call{.kind = OperationKind::kAllReduce, .count = 10, .type = DataType::kFloat32};
  EXPECT_EQ(whole_bytes(call, 4), 40U);
  call.kind = OperationKind::kAllGather;
  EXPECT_EQ(whole_bytes(call, 4), 160U);
  call.kind = OperationKind::kAllGatherV;
  call.counts = {1, 2, 0, 3};
  EXPECT_EQ(whole_bytes(call, 4), 24U);
}

}  // namespace
}  // namespace reigen::comm
