#include "comm/shared_memory/heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm::shared_memory {
namespace {

TEST(Heap, BlocksAreZeroedAlignedAndApart) {
  auto heap = std::make_shared<Heap>();
  std::vector<std::pair<std::shared_ptr<void>, std::size_t>> blocks;
  std::mt19937 generator(1);
  for (int round = 0; round < 400; ++round) {
    const std::size_t size = generator() % 20000 + 1;
    auto block = heap->allocate(size);
    auto* bytes = static_cast<unsigned char*>(block.get());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % (size >= 4096 ? 4096 : 64), 0u);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[i], 0);
    std::memset(bytes, 0xff, size);
    blocks.emplace_back(std::move(block), size);
    if (generator() % 2 == 0) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(generator() % blocks.size()));
  }
  for (const auto& [block, size] : blocks) {
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(static_cast<unsigned char*>(block.get())[i], 0xff);
  }
}

TEST(Heap, FreedMemoryIsUsedAgain) {
  auto heap = std::make_shared<Heap>();
  const void* first = heap->allocate(kMiB).get();
  for (int i = 0; i < 2000; ++i) heap->allocate(3 * kMiB);  // this would be 6 GB if no memory came back
  EXPECT_EQ(heap->allocate(kMiB).get(), first);
}

TEST(Heap, FreedMemoryMergesWithWhatWasNeverUsed) {
  auto heap = std::make_shared<Heap>();
  auto first = heap->allocate(kMiB);
  const void* begin = first.get();
  std::memset(first.get(), 0xff, kMiB);
  first.reset();
  const auto whole = heap->allocate(4 * kMiB);
  EXPECT_EQ(whole.get(), begin);
  for (std::size_t i = 0; i < 4 * kMiB; ++i) ASSERT_EQ(static_cast<unsigned char*>(whole.get())[i], 0);
}

TEST(Heap, LocatesOnlyWhatIsWhollyInside) {
  auto heap = std::make_shared<Heap>();
  auto block = heap->allocate(100);
  auto* data = static_cast<std::byte*>(block.get());
  EXPECT_EQ(heap->locate(data, 100).visible, Visible::kInHeap);
  EXPECT_EQ(heap->locate(data + 4, 10).offset, heap->locate(data, 1).offset + 4);
  EXPECT_FALSE(heap->locate(data, 10 * kMiB).is_reachable());
  int foreign = 0;
  EXPECT_FALSE(heap->locate(&foreign, sizeof(foreign)).is_reachable());
}

TEST(Heap, PeersSeeSegmentsAddedLater) {
  auto heap = std::make_shared<Heap>();
  PeerHeap peer(heap->directory_address());
  for (const std::size_t size : {100u, 9u << 20, 100u, 20u << 20}) {
    auto block = heap->allocate(size);
    static_cast<char*>(block.get())[size - 1] = 'x';
    EXPECT_EQ(static_cast<char>(peer.resolve(heap->locate(block.get(), size))[size - 1]), 'x');
  }
}

TEST(Heap, BlocksKeepTheHeapAlive) {
  std::shared_ptr<void> block;
  {
    auto heap = std::make_shared<Heap>();
    block = heap->allocate(64);
  }
  std::memset(block.get(), 1, 64);
}

TEST(Heap, QuarantineHandsNothingOutAgain) {
  auto heap = std::make_shared<Heap>();
  auto block = heap->allocate(kMiB);
  const void* address = block.get();
  heap->quarantine();
  block.reset();
  for (int i = 0; i < 8; ++i) EXPECT_NE(heap->allocate(kMiB).get(), address);
}

TEST(Heap, MoreThanThereIsIsAnErrorNotASignal) {
  auto heap = std::make_shared<Heap>();
  try {
    heap->allocate(std::size_t{1} << 50);
    FAIL() << "a petabyte was handed out";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
    EXPECT_NE(std::string(error.what()).find("no shared memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace reigen::comm::shared_memory
