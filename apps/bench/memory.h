// Private memory of a rank, which is written once, so that the kernel provides its pages before anything is timed; and
// how many buffers are needed so that no cache holds them. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <memory>

namespace reigen::apps::bench {

// Memory aligned to 4096 bytes. Throws IoError (71) when there is not enough.
std::shared_ptr<std::byte> allocate_private(std::size_t bytes);

// The number of buffers of this size that are used in turn: one, or if `cold` so many that together they exceed 64 MiB.
std::size_t slots_of(std::size_t bytes, bool cold);

}  // namespace reigen::apps::bench
