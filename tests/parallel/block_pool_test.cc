// Blocks of memory that are reused.
#include "parallel/exchange/block_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace reigen::parallel::block_pool_test {
namespace {

// Takes and returns memory like the weights of a model's units. Two units have memory at a time: the next one is
// gathered while one computes.
void run_step(BlockPool& pool, const std::vector<std::size_t>& units) {
  std::shared_ptr<void> running;
  const auto fetch = [&](std::size_t bytes) {
    std::shared_ptr<void> next = pool.take(bytes);
    pool.give_back(std::move(running));
    running = std::move(next);
  };
  for (const std::size_t bytes : units) fetch(bytes);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) fetch(*unit);
  pool.give_back(std::move(running));
}

TEST(BlockPool, UnitsOfUnequalSizeAllocateNothingAfterSomeSteps) {
  std::vector<std::size_t> transformer = {98 << 10};
  transformer.insert(transformer.end(), 12, 28 << 10);
  transformer.push_back(98 << 10);
  const std::vector<std::size_t> residual = {9408, 147456, 147456, 229376, 524288, 1179648, 2097152, 4718592, 2048000};
  for (const std::vector<std::size_t>& units : {transformer, residual}) {
    BlockPool pool{Communicator()};
    for (int step = 0; step < 3; ++step) run_step(pool, units);
    const std::int64_t before = pool.allocations();
    for (int step = 0; step < 50; ++step) run_step(pool, units);
    EXPECT_EQ(pool.allocations(), before);
  }
}

TEST(BlockPool, ABlockThatServedASmallRequestServesALargeOneAgain) {
  BlockPool pool{Communicator()};
  std::shared_ptr<void> block = pool.take(1000);
  const void* const first = block.get();
  pool.give_back(std::move(block));
  block = pool.take(10);
  EXPECT_EQ(block.get(), first);
  pool.give_back(std::move(block));
  pool.give_back(nullptr);
  block = pool.take(1000);
  EXPECT_EQ(block.get(), first);
  EXPECT_EQ(pool.allocations(), 1);
}

}  // namespace
}  // namespace reigen::parallel::block_pool_test
