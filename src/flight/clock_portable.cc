#include "flight/clock.h"

namespace reigen::flight {

bool has_counter() { return false; }

std::uint64_t read_counter() { return 0; }

}  // namespace reigen::flight
