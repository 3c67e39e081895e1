#include "reigen/tensor/pieces.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/layout/choose.h"
#include "reigen/runtime/init.h"

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
  // safetensors has a type for complex numbers of two floats (C64), but none for those of two doubles.
  EXPECT_THROW(Pieces({{"z", at::zeros({2}, at::kComplexDouble)}}), InvalidArgument);
}

TEST_F(PiecesTest, AGroupThatIsNotThereIsEmpty) {
  const checkpoint::Checkpoint from = saved({{"a", at::ones({2})}});
  EXPECT_TRUE(read_group(from, "optimizer").empty());
  EXPECT_NO_THROW(read_into(from, "optimizer", {}));
}

// Tensor parallelism makes boxes, and data parallelism cuts them into flat shares. 2 x 2 ranks save, 3 ranks load.
TEST_F(PiecesTest, ATensorParallelShardIsSavedByFourRanksAndLoadedByThree) {
  const layout::ModelSpec model{.tensors = {{.name = "up", .shape = {50, 40}}, {.name = "norm", .shape = {40}}}};
  const at::Tensor up = at::arange(2000, at::kFloat).reshape({50, 40});
  const at::Tensor norm = at::arange(40, at::kFloat) / 7;
  // A rank has only its box in memory.
  const auto of_rank = [&](const layout::Layout& layout, std::size_t i, const layout::Part& part, bool filled) {
    at::Tensor box = i == 0 ? up : norm;
    for (std::size_t d = 0; d < part.shape.size(); ++d) {
      box = box.narrow(static_cast<std::int64_t>(d), part.offset[d], part.shape[d]);
    }
    const layout::TensorSpec& spec = layout.model().tensors[i];
    return NamedTensor{spec.name, filled ? box.contiguous() : at::zeros(part.shape), part, spec.shape};
  };

  const layout::Layout four = layout::choose(
      model,
      {.sharding = layout::Sharding::kParameters, .axes = {{"dp_shard", 2}, {"tp", 2}}, .splits = {{"up", {"tp", 1}}}},
      {});
  run_threads(4, [&](Communicator& world) {
    std::vector<NamedTensor> given;
    for (std::size_t i = 0; i < 2; ++i) {
      const layout::Part part = four.given_by(i, layout::Role::kValue, four.coordinates_of(world.rank()));
      given.push_back(of_rank(four, i, part, true));
    }
    const Pieces pieces(given);
    checkpoint::Manifest manifest{.step = 1};
    for (const layout::Axis& axis : four.axes()) manifest.mesh.emplace_back(axis.name, axis.size);
    checkpoint::save(folder_.path(), manifest, {{"model", pieces.pieces()}}, 1, world);
  });

  // The manifest contains the layout as text.
  const auto found = checkpoint::find_newest(folder_.path());
  ASSERT_TRUE(found.newest);
  const checkpoint::Manifest& manifest = found.newest->manifest();
  EXPECT_EQ(manifest.mesh, (std::vector<std::pair<std::string, std::int64_t>>{{"dp_shard", 2}, {"tp", 2}}));
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<layout::Part> parts;
    for (int rank = 0; rank < four.ranks(); ++rank) {
      const layout::Part part = four.given_by(i, layout::Role::kValue, four.coordinates_of(rank));
      if (part.count > 0) parts.push_back(part);
    }
    const checkpoint::StoredTensor* stored = manifest.find("model", model.tensors[i].name);
    ASSERT_NE(stored, nullptr);
    EXPECT_EQ(stored->shape, model.tensors[i].shape);
    std::vector<layout::Part> written;
    for (const checkpoint::StoredPiece& piece : stored->pieces) written.push_back(piece.part);
    EXPECT_THAT(written, ::testing::UnorderedElementsAreArray(parts));
  }

  const layout::Layout three =
      layout::choose(model, {.axes = {{"tp", 3}}, .splits = {{"up", {"tp", 0}}, {"norm", {"tp", 0}}}}, {});
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<NamedTensor> into, expected;
    for (std::size_t i = 0; i < 2; ++i) {
      const layout::Part part = three.part_of(i, layout::Role::kValue, {rank});
      into.push_back(of_rank(three, i, part, false));
      expected.push_back(of_rank(three, i, part, true));
    }
    read_into(*found.newest, "model", into);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(into[i].tensor, expected[i].tensor)) << rank;
  }
}

}  // namespace
}  // namespace reigen::tensor
