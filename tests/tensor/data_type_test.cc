#include "reigen/tensor/data_type.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include "reigen/base/error.h"

namespace reigen::tensor {
namespace {

TEST(DataType, GoesThereAndBack) {
  for (const at::ScalarType type : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                                    at::kFloat, at::kDouble, at::kBool}) {
    EXPECT_EQ(to_scalar_type(to_data_type(type)), type);
    EXPECT_EQ(comm::size_of(to_data_type(type)), c10::elementSize(type));
  }
}

TEST(DataType, NamesWhatItCannotMap) {
  for (const at::ScalarType type : {at::kComplexFloat, at::kComplexDouble, at::kQInt8}) {
    try {
      to_data_type(type);
      FAIL() << c10::toString(type);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
      EXPECT_THAT(error.what(), testing::HasSubstr(c10::toString(type)));
    }
  }
}

}  // namespace
}  // namespace reigen::tensor
