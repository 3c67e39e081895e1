#include "reigen/tensor/pieces.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::tensor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PiecesTest : public ::testing::Test {
 protected:
  checkpoint::Checkpoint saved(const std::vector<NamedTensor>& tensors) {
    const Pieces pieces(tensors);
    return checkpoint::Checkpoint(checkpoint::save(folder_.path(), {.step = 1}, {{"model", pieces.pieces()}}, 1));
  }

  std::string why_not_read(const checkpoint::Checkpoint& from, const std::vector<NamedTensor>& tensors) {
    try {
      read_into(from, "model", tensors);
    } catch (const DataError& error) {
      return error.what();
    }
    return "it was read";
  }

  tests::TemporaryFolder folder_;
};

TEST_F(PiecesTest, EveryTypeAndShapeComesBackAsItWas) {
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                                    at::kChar, at::kByte, at::kBool}) {
    tensors.push_back(
        {std::string("of_") + at::toString(type), at::arange(0, 6).remainder(3).reshape({2, 3}).to(type)});
  }
  tensors.push_back({"scalar", at::scalar_tensor(2.5, at::kDouble)});
  tensors.push_back({"empty", at::empty({0, 4})});
  tensors.push_back({"transposed", at::arange(12, at::kFloat).reshape({3, 4}).t()});
  const checkpoint::Checkpoint from = saved(tensors);

  std::vector<NamedTensor> targets;
  for (const NamedTensor& item : tensors) targets.push_back({item.name, at::empty_like(item.tensor)});
  read_into(from, "model", targets);
  const std::vector<NamedTensor> all = read_group(from, "model");
  ASSERT_EQ(all.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(targets[i].tensor, tensors[i].tensor)) << tensors[i].name;
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const NamedTensor& one) { return one.name == tensors[i].name; });
    ASSERT_NE(same, all.end()) << tensors[i].name;
    EXPECT_EQ(same->tensor.scalar_type(), tensors[i].tensor.scalar_type());
    EXPECT_TRUE(at::equal(same->tensor, tensors[i].tensor)) << tensors[i].name;
  }
}

TEST_F(PiecesTest, ATensorThatIsNoBlockIsReadInPlace) {
  const checkpoint::Checkpoint from = saved({{"w", at::arange(12, at::kFloat).reshape({3, 4})}});
  const at::Tensor target = at::zeros({4, 3}).t();
  const void* before = target.data_ptr();
  read_into(from, "model", {{"w", target}});
  EXPECT_EQ(target.data_ptr(), before);
  EXPECT_TRUE(at::equal(target, at::arange(12, at::kFloat).reshape({3, 4})));
}

TEST_F(PiecesTest, WhatDoesNotFitIsNamedAndNothingIsChanged) {
  const checkpoint::Checkpoint from = saved({{"a", at::ones({2})}, {"b", at::ones({2, 3})}});
  const at::Tensor a = at::zeros({2});
  EXPECT_THAT(why_not_read(from, {{"a", a}, {"b", at::zeros({3, 2})}}),
              AllOf(HasSubstr("b"), HasSubstr("[2, 3]"), HasSubstr("[3, 2]")));
  EXPECT_THAT(why_not_read(from, {{"a", a}, {"b", at::zeros({2, 3}, at::kDouble)}}),
              AllOf(HasSubstr("F32"), HasSubstr("F64")));
  EXPECT_THAT(why_not_read(from, {{"a", a}, {"b", at::zeros({2, 3})}, {"c", at::zeros({1})}}),
              HasSubstr("no tensor c"));
  EXPECT_THAT(why_not_read(from, {{"a", a}}), HasSubstr("the model has no b"));
  EXPECT_TRUE(at::equal(a, at::zeros({2})));
}

TEST_F(PiecesTest, ATypeThatFilesDoNotKnowIsRefused) {
  // safetensors has a name for complex numbers of two floats (C64), and none for those of two doubles.
  EXPECT_THROW(Pieces({{"z", at::zeros({2}, at::kComplexDouble)}}), InvalidArgument);
}

TEST_F(PiecesTest, AGroupThatIsNotThereIsEmpty) {
  const checkpoint::Checkpoint from = saved({{"a", at::ones({2})}});
  EXPECT_TRUE(read_group(from, "optimizer").empty());
  EXPECT_NO_THROW(read_into(from, "optimizer", {}));
}

}  // namespace
}  // namespace reigen::tensor
