// CRC32C (Castagnoli), the checksum of TensorFlow's records: event files and TFRecord. A processor with SSE4.2 computes
// it by its own instruction, about 10 times as fast as the table does.
// Thread rule: pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <string_view>

namespace reigen::format {

std::uint32_t crc32c(std::string_view data);
// As records store it: rotated and added to a constant, so that the checksum of a checksum is no special case.
std::uint32_t masked_crc32c(std::string_view data);

// Continue from the state `crc`, which is neither inverted before nor after. Without an instruction of the processor,
// both use the table.
std::uint32_t crc32c_by_table(std::uint32_t crc, std::string_view data);
std::uint32_t crc32c_by_machine(std::uint32_t crc, std::string_view data);

}  // namespace reigen::format
