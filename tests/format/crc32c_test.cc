#include "format/crc32c/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace reigen::format {
namespace {

// The values of RFC 3720, B.4, and of the check in the catalogue of CRCs.
TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
}

// The instruction of the processor and the table, for all lengths around the width of both.
TEST(Crc32c, TheMachinesInstructionGivesTheTablesValue) {
  std::string data;
  for (unsigned i = 0; i < 300; ++i) {
    EXPECT_EQ(crc32c_by_machine(i, data), crc32c_by_table(i, data)) << i;
    data += static_cast<char>(i * 7919U >> 3);
  }
}

}  // namespace
}  // namespace reigen::format
