// The signature of a call, which other ranks compare.
#include "comm/call/signature.h"

#include <gtest/gtest.h>

#include "comm/shared_memory/group.h"

namespace reigen::comm {
namespace {

TEST(Tag, KeepsWhatFits) {
  EXPECT_TRUE(Tag().empty());
  EXPECT_EQ(Tag("step 3").text(), "step 3");
  EXPECT_EQ(Tag(std::string(100, 'x')).text(), std::string(kLongestTag, 'x'));
  EXPECT_EQ(Tag("a"), Tag("a"));
  EXPECT_FALSE(Tag("a") == Tag("b"));
  Tag shorter("longer words");
  shorter.assign("short");  // characters after the end do not count
  EXPECT_EQ(shorter, Tag("short"));
}

TEST(Signature, ReadsAsPeopleCallIt) {
  Call call{.kind = OperationKind::kReduce, .count = 100, .type = DataType::kFloat32, .root = 2, .tag = "step\n3"};
  EXPECT_EQ(describe(signature_of(call)), "reduce(100 float32, sum, root 2) \"step 3\"");
  EXPECT_EQ(describe(signature_of({.kind = OperationKind::kBarrier})), "barrier");
  call = {.kind = OperationKind::kAllGatherV, .type = DataType::kFloat32, .counts = {3, 4}};
  EXPECT_EQ(describe(signature_of(call)), "all_gather_v(7 float32 in blocks of 3, 4)");
}

// Each pair of ranks has its own count, so the signature of the call has none, on every backend.
TEST(Signature, AllToAllWithCountsHasNoCount) {
  const Call call{.kind = OperationKind::kAllToAllV, .type = DataType::kFloat32, .counts = {3, 4}, .arrives = {3, 4}};
  EXPECT_EQ(describe(signature_of(call)), "all_to_all_v(float32)");
  shared_memory::Descriptor descriptor{};
  descriptor.kind = call.kind;
  descriptor.type = call.type;
  EXPECT_EQ(describe(shared_memory::signature_of(descriptor)), "all_to_all_v(float32)");
}

TEST(Signature, SurvivesAsALine) {
  for (const Call& call :
       {Call{.kind = OperationKind::kBarrier},
        Call{.kind = OperationKind::kReduce, .count = 7, .op = ReduceOp::kMax, .root = 3, .tag = " a  b "},
        Call{.kind = OperationKind::kAllGatherV, .counts = {1, 2, 3, 4, 5, 6}}}) {
    EXPECT_EQ(decode_signature(encode(signature_of(call))), signature_of(call));
  }
}

TEST(Signature, TheFirstWordThatDiffers) {
  const CallSignature a = signature_of({.kind = OperationKind::kAllReduce, .count = 7, .tag = "x"});
  EXPECT_EQ(what_differs(a, a), "");
  const auto changed = [&](auto&& change) {
    CallSignature b = a;
    change(b);
    return what_differs(a, b);
  };
  EXPECT_EQ(changed([](CallSignature& b) { b.kind = OperationKind::kReduce, b.count = 8; }), "operation");
  EXPECT_EQ(changed([](CallSignature& b) { b.counts.hash = 1; }), "counts");
  EXPECT_EQ(changed([](CallSignature& b) { b.count = 8, b.root = 1; }), "count");
  EXPECT_EQ(changed([](CallSignature& b) { b.type = DataType::kFloat64; }), "type");
  EXPECT_EQ(changed([](CallSignature& b) { b.op = ReduceOp::kMax; }), "reduction");
  EXPECT_EQ(changed([](CallSignature& b) { b.root = 1; }), "root");
  EXPECT_EQ(changed([](CallSignature& b) { b.tag.assign("y"); }), "tag");
}

}  // namespace
}  // namespace reigen::comm
