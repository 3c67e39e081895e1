// Private memory of a rank, and the number of buffers that no cache can hold. The memory is written once, so that the
// kernel provides its pages before anything is timed. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <memory>

namespace reigen::apps::bench {

// Memory aligned to 4096 bytes. Throws IoError with exit code 71 when there is not enough memory.
std::shared_ptr<std::byte> allocate_private(std::size_t bytes);

// The number of buffers of this size that are used in turn. The number is one if not `cold`. If `cold`, it is so large
// that the buffers together exceed 64 MiB.
std::size_t slots_of(std::size_t bytes, bool cold);

}  // namespace reigen::apps::bench
