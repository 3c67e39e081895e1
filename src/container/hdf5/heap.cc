#include "container/hdf5/heap.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "container/sample.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kHeapHead = 16;  // of a collection, and of a value in it

template <class Number>
Number number_of(std::span<const std::byte> bytes, std::size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

std::uint64_t GlobalHeap::offset_of(std::span<const std::byte> reference) const {
  return base_ + number_of<std::uint64_t>(reference, 4);
}

// A collection is a head ("GCOL", version, size), then values one after the other, each with a head of its own: number
// (2 bytes), count of references (2), 4 bytes, size (8). Number 0 is the free space at the end.
std::uint64_t GlobalHeap::find(std::uint64_t collection, std::uint32_t number, std::uint64_t* size,
                               const std::string& place) const {
  std::array<std::byte, kHeapHead> head{};
  if (collection > file_.size() || file_.read_at(collection, head) != head.size() ||
      text_of(head).substr(0, 4) != "GCOL") {
    fail_damaged(place, fmt::format("no heap at offset {}", collection), "the heap with the value");
  }
  const auto whole = number_of<std::uint64_t>(head, 8);
  if (whole > file_.size() - collection) {
    fail_damaged(place, fmt::format("a heap of {} bytes at offset {}", whole, collection),
                 "one that ends within the file");
  }
  for (std::uint64_t at = kHeapHead; at + kHeapHead <= whole;) {
    if (file_.read_at(collection + at, head) != head.size()) break;
    const auto here = number_of<std::uint16_t>(head, 0);
    const auto bytes = number_of<std::uint64_t>(head, 8);
    if (here == 0) break;
    if (bytes > whole - at - kHeapHead) {
      fail_damaged(place, fmt::format("a value of {} bytes at offset {}", bytes, collection + at),
                   "one that ends within its heap");
    }
    if (here == number) {
      *size = bytes;
      return collection + at + kHeapHead;
    }
    at += kHeapHead + (bytes + 7) / 8 * 8;
  }
  fail_damaged(place, fmt::format("no value {} in the heap at offset {}", number, collection), "the value");
}

std::vector<std::byte> GlobalHeap::read(std::span<const std::byte> reference, std::uint64_t element,
                                        const std::string& place) const {
  const auto count = number_of<std::uint32_t>(reference, 0);
  const auto address = number_of<std::uint64_t>(reference, 4);
  const auto number = number_of<std::uint32_t>(reference, 12);
  if (count == 0) return {};
  const std::uint64_t collection = base_ + address;
  std::uint64_t size = 0;
  if (collection < base_) fail_damaged(place, fmt::format("address {:#x}", address), "an address within the file");
  const std::uint64_t at = find(collection, number, &size, place);
  if (count * element > size) {
    fail_damaged(place, fmt::format("{} bytes in the heap at offset {}", size, at), fmt::format("{}", count * element));
  }
  std::vector<std::byte> bytes(count * element);
  if (file_.read_at(at, bytes) != bytes.size())
    fail_damaged(place, "the end of the file", fmt::format("{} bytes at offset {}", bytes.size(), at));
  return bytes;
}

}  // namespace reigen::container
