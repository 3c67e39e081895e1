#include "reigen/tensor/tensor_files.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/format/safetensors.h"

namespace reigen::tensor {
namespace {

TEST(TensorFiles, EveryTypeThatFilesAndLibTorchHave) {
  std::vector<NamedTensor> tensors;
  const at::Tensor bytes = at::arange(64, at::kByte);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                                    at::kChar, at::kByte, at::kUInt64, at::kUInt32, at::kUInt16, at::kComplexFloat,
                                    at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz}) {
    tensors.push_back({at::toString(type), bytes.view(type)});
  }
  tensors.push_back({"Bool", bytes > 7});
  tensors.push_back({"scalar", at::tensor(2.5F).squeeze()});
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_tensors(path, tensors);
  const std::vector<NamedTensor> back = read_tensors(path);
  ASSERT_EQ(back.size(), tensors.size());
  for (const NamedTensor& item : tensors) {
    const auto found =
        std::find_if(back.begin(), back.end(), [&](const NamedTensor& other) { return other.name == item.name; });
    ASSERT_NE(found, back.end()) << item.name;
    EXPECT_EQ(found->tensor.scalar_type(), item.tensor.scalar_type());
    EXPECT_EQ(found->tensor.sizes(), item.tensor.sizes());
    EXPECT_EQ(std::memcmp(found->tensor.data_ptr(), item.tensor.data_ptr(), item.tensor.nbytes()), 0) << item.name;
  }
  read_tensors_into(path, back);
}

TEST(TensorFiles, ATypeThatOnlyOneOfTheTwoHasIsNamed) {
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  try {
    write_tensors(path, {{"z", at::zeros({2}, at::kComplexDouble)}});
    ADD_FAILURE() << "written";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("z"), testing::HasSubstr("ComplexDouble")));
  }
  const std::byte bytes[1] = {};
  format::write_safetensors(
      path, std::vector<format::TensorSource>{{"packed", format::TensorType::kF4, {2}, std::span(bytes)}});
  for (const bool into : {false, true}) {
    try {
      if (into) read_tensors_into(path, {{"packed", at::zeros({2})}});
      if (!into) read_tensors(path);
      ADD_FAILURE() << "read";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("packed"), testing::HasSubstr("F4")));
    }
  }
}

}  // namespace
}  // namespace reigen::tensor
