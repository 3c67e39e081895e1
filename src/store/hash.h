// FNV-1a, 64 bits: tells damaged records and different jobs apart. No protection against somebody who wants a
// collision.
#pragma once

#include <cstdint>
#include <string_view>

namespace reigen::store {

std::uint64_t fnv1a(std::string_view bytes);

}  // namespace reigen::store
