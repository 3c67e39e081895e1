#include "reigen/config/duration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/error.h"

namespace reigen::config {
namespace {

using Unit = Duration::Unit;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Duration, StepsEpochsAndTime) {
  const auto parsed = [](const char* text) { return parse_duration("validate.every", text); };
  EXPECT_EQ(parsed("500"), (Duration{500, Unit::kSteps}));
  EXPECT_EQ(parsed("1 step"), (Duration{1, Unit::kSteps}));
  EXPECT_EQ(parsed("20steps"), (Duration{20, Unit::kSteps}));
  EXPECT_EQ(parsed("2 epochs"), (Duration{2, Unit::kEpochs}));
  EXPECT_EQ(parsed("0.25 epochs"), (Duration{0.25, Unit::kEpochs}));
  EXPECT_EQ(parsed("90 s"), (Duration{90, Unit::kSeconds}));
  EXPECT_EQ(parsed("30 min"), (Duration{1800, Unit::kSeconds}));
  EXPECT_EQ(parsed("1.5 h"), (Duration{5400, Unit::kSeconds}));
}

TEST(Duration, OtherTextIsRefusedByTheNameOfTheOption) {
  for (const char* text : {"", "0", "-1", "0.5", "1.5 steps", "2 epoch s", "epochs", "1 day", "inf s", "nan", "1e30",
                           "5 min 3 s", "0 epochs", "-2 h"}) {
    try {
      parse_duration("validate.every", text);
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("validate.every is no number of steps, epochs or time"), HasSubstr("0.25 epochs")))
          << text;
    }
  }
}

}  // namespace
}  // namespace reigen::config
