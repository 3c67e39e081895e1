// The command line of `reigen bench`. Thread rule: plain values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/operation.h"
#include "reigen/device/device.h"
#include "reigen_commands.h"

namespace reigen::apps::bench {

struct BenchOptions {
  Operation operation = Operation::kAllReduce;
  const MockUp* as = nullptr;  // the mock-up that is called in place of the operation
  std::optional<int> ranks;    // -n, if given
  std::size_t smallest = 4;
  std::size_t largest = 0;
  std::size_t factor = 4;
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  int root = 0;
  int iterations = 0;  // 0 means so many that they take half a second
  int warmup = 5;
  int in_flight = 1;  // calls in flight at once
  std::string json;
  std::string backend = "auto";
  Device device = {};     // the device whose memory is used
  std::string algorithm;  // empty if the group chooses as usual
  int segments = 0;       // 0 if the size of the call decides
  int machines = 0;       // 0 means the real machines; else the number of machines that this machine simulates
  bool foreign = false;
  bool check = false;
  bool cold = false;
  bool in_place = false;
  bool shared = false;   // all ranks use one memory
  bool explain = false;  // only print which algorithms would run
  bool fill = true;      // write inputs whose results can be checked; if false, the memory keeps its contents
  double seconds = 0.5;  // how long to time one size, if iterations is 0
  int late_ms = 0;       // milliseconds by which the last rank is late in every call
};

// Returns nullopt for --help, after printing the help. Throws InvalidArgument with exit code 2 for options that are
// wrong for any number of ranks.
std::optional<BenchOptions> parse_bench_options(const Arguments& arguments);

// One problem for each size, smallest first. Sizes are rounded to whole elements, at least one per block. Throws
// InvalidArgument with exit code 2 when the root is not a rank.
std::vector<Problem> problems_of(const BenchOptions& options, int ranks, int rank);

// The text for GroupOptions::algorithms, in which the rules for the operation are those of --algorithm.
std::string rules_of(const BenchOptions& options);

// The algorithm of --algorithm, without the sizes of its rule; empty if --algorithm names no algorithm.
std::string named_algorithm(const BenchOptions& options);

// The name that nccl-tests gives the type (float, double, half), or Reigen's name for types that nccl-tests does not
// have.
const char* nccl_name_of(comm::DataType type);

}  // namespace reigen::apps::bench
