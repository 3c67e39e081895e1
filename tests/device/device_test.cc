#include "reigen/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/error.h"

namespace reigen {
namespace {

using ::testing::HasSubstr;

TEST(Device, IsReadAndWrittenAsPeopleWriteIt) {
  EXPECT_EQ(parse_device("cpu"), Device::cpu());
  EXPECT_EQ(parse_device("cuda"), Device::cuda());
  EXPECT_EQ(parse_device("cuda:0"), Device::cuda(0));
  EXPECT_EQ(parse_device("cuda:12"), Device::cuda(12));
  for (const char* text : {"cpu", "cuda", "cuda:0", "cuda:12"}) EXPECT_EQ(to_string(parse_device(text)), text);
}

TEST(Device, AnythingElseIsRefusedWithWhatIsKnown) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda 1", "CUDA", "cuda:99999999999"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("\"") + text + "\""));
      EXPECT_THAT(error.what(), HasSubstr("cpu, cuda or cuda:N"));
    }
  }
}

}  // namespace
}  // namespace reigen
