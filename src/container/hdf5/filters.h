// Undoes the filters of HDF5's chunks: deflate (gzip), shuffle, fletcher32 and zstd.
// Source: HDF5 File Format Specification 3.0, IV.A.2.l "Filter Pipeline"; zstd is number 32015 of the registry.
// Thread rule: pure functions; many threads unpack at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace reigen::container {

enum ChunkFilter : int { kDeflateFilter = 1, kShuffleFilter = 2, kFletcherFilter = 3, kZstdFilter = 32015 };

bool is_known_filter(int filter);

// `filters` are in the order in which they were applied; bit i of `mask` says that filter i was left out. `element` is
// the size of an element, `size` that of the whole chunk. Throws DataError, which names `place`.
std::vector<std::byte> unfiltered(std::vector<std::byte> chunk, const std::vector<int>& filters, std::uint32_t mask,
                                  std::size_t element, std::uint64_t size, const std::string& place);

}  // namespace reigen::container
