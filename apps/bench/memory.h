// Private memory of a rank, touched, so that the kernel has given the pages before anything is timed; and how much of
// it no cache holds. Thread rule: none.
#pragma once

#include <cstddef>
#include <memory>

namespace reigen::apps::bench {

// Aligned to 4096. Throws IoError (71) when there is no more.
std::shared_ptr<std::byte> allocate_private(std::size_t bytes);

// How many buffers of this size are used in turn: one, or when `cold` as many as are 64 MiB together.
std::size_t slots_of(std::size_t bytes, bool cold);

}  // namespace reigen::apps::bench
