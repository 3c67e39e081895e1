// The global heap of an HDF5 file, where the values of variable length lie. They are read from the file itself, without
// the library: so many threads read at once, and every size is checked.
// Source: HDF5 File Format Specification 3.0, III.E "Global Heap", with addresses and lengths of eight bytes.
// Thread rule: any number of threads may read at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/input_file.h"

namespace reigen::container {

inline constexpr std::size_t kHeapReference = 16;  // bytes: count of elements (4), address (8), number in the heap (4)

class GlobalHeap {
 public:
  // `base` is the place in the file that addresses count from.
  GlobalHeap(const format::InputFile& file, std::uint64_t base) : file_(file), base_(base) {}

  // The bytes of a value of `count * element` bytes, to which the 16 bytes refer. Throws DataError, which names
  // `place`.
  std::vector<std::byte> read(std::span<const std::byte> reference, std::uint64_t element,
                              const std::string& place) const;
  // The place in the file to which the 16 bytes refer, for messages.
  std::uint64_t offset_of(std::span<const std::byte> reference) const;

 private:
  std::uint64_t find(std::uint64_t collection, std::uint32_t number, std::uint64_t* size,
                     const std::string& place) const;

  const format::InputFile& file_;
  std::uint64_t base_;
};

}  // namespace reigen::container
