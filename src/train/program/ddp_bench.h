// reigen bench ddp: measures where the time of a data-parallel step goes, for several bucket sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/train/config.h"
#include "train/tasks/recipes.h"

namespace reigen::train {

struct DdpBenchOptions {
  std::string recipe = "resnet18";
  std::vector<double> buckets_mb = {0, 1, 5, 10, 25, 50, 100};
  std::int64_t steps = 3;   // steps of each kind in a round
  std::int64_t rounds = 5;  // rounds over all bucket sizes
  std::string json = {};
  bool help = false;
  std::vector<std::string> rest = {};  // options of the recipe
};

// Throws InvalidArgument with exit code 2 for arguments that it cannot parse.
DdpBenchOptions parse_ddp_bench(const std::vector<std::string>& arguments);
std::string ddp_bench_help();

// Throws InvalidArgument with exit code 2 for options of the recipe that the benchmark sets itself or cannot measure.
void require_measurable(const Config& config);

// Milliseconds of the slowest rank, as medians over rounds and steps. The computation of a step takes forward_ms +
// backward_ms. `overlapped` and `naive` are whole steps with communication: `overlapped` sends buckets during backward,
// `naive` sends them after backward.
struct DdpBenchRow {
  double bucket_mb = 0;
  std::size_t buckets = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double communication_ms = 0;
  double overlapped_ms = 0;
  double naive_ms = 0;

  double compute_ms() const { return forward_ms + backward_ms; }
  double sum_ms() const { return compute_ms() + communication_ms; }
  double exposed_ms() const { return overlapped_ms - compute_ms(); }
  // The time that overlapping saves, divided by the smaller of the times of communication and backward. The result can
  // lie outside of 0 to 1 if the smaller time is below the measurement noise.
  double hidden() const;
};

// Collective. Every rank passes the same options and gets the same rows.
std::vector<DdpBenchRow> measure_ddp(const Recipe& recipe, const Config& config, const DdpBenchOptions& options,
                                     const Communicator& world);

// Collective. Measures as measure_ddp() does. Rank 0 prints the rows, and writes them to the file options.json.
void report_ddp(const Recipe& recipe, const Config& config, const DdpBenchOptions& options, const Communicator& world);

}  // namespace reigen::train
