// No instruction is used on processors other than x86-64.
#include "format/crc32c/crc32c.h"

namespace reigen::format {

std::uint32_t crc32c_by_machine(std::uint32_t crc, std::string_view data) { return crc32c_by_table(crc, data); }

}  // namespace reigen::format
