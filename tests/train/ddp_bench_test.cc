// reigen bench ddp on CPUs and on GPUs, which the CPU plays.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fakes/cuda/stand_in.h"
#include "reigen/runtime/init.h"
#include "train/program/ddp_bench.h"
#include "train/tasks/recipes.h"

namespace reigen::train {
namespace {

std::vector<DdpBenchRow> measure(const char* device, int ranks) {
  const Recipe& recipe =
      *std::find_if(recipes().begin(), recipes().end(), [](const Recipe& one) { return one.name == "mlp"; });
  Config config = recipe.defaults;
  config.train.device = device;
  config.train.global_batch = 8;
  for (ModelOption& option : config.model.options) {
    if (option.key == "dim") option.value = std::int64_t{16};
  }
  const DdpBenchOptions options{.buckets_mb = {0, 25}, .steps = 1, .rounds = 2};
  std::mutex mutex;
  std::map<int, std::vector<DdpBenchRow>> rows;
  run_threads(ranks,
              [&](const Communicator& world) {
                const auto measured = measure_ddp(recipe, config, options, world);
                const std::lock_guard lock(mutex);
                rows[world.rank()] = measured;
              },
              {.device = parse_device(device)});
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < rows[rank].size(); ++i)
      EXPECT_EQ(rows[rank][i].overlapped_ms, rows[0][i].overlapped_ms);  // of the slowest rank
  }
  return rows[0];
}

TEST(DdpBench, MeasuresOnEitherDevice) {
  testing::stand_in::hide_memory();
  for (const auto& [device, ranks] : {std::pair{"cpu", 2}, {"cuda", 1}, {"cuda", 2}, {"cuda:1", 2}}) {
    const std::vector<DdpBenchRow> rows = measure(device, ranks);
    ASSERT_EQ(rows.size(), 2U) << device;
    if (ranks > 1) {
      EXPECT_GT(rows[0].buckets, rows[1].buckets) << device;
    }
    for (const DdpBenchRow& row : rows) {
      for (const double time : {row.forward_ms, row.backward_ms, row.overlapped_ms, row.naive_ms})
        EXPECT_GT(time, 0) << device;
    }
  }
}

}  // namespace
}  // namespace reigen::train
