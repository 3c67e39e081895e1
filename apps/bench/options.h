// The command line of `reigen bench`. Thread rule: values.
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
  const MockUp* as = nullptr;  // what is called in its place
  std::optional<int> ranks;    // -n, if given
  std::size_t smallest = 4;
  std::size_t largest = 0;
  std::size_t factor = 4;
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  int root = 0;
  int iterations = 0;  // 0: as many as take half a second
  int warmup = 5;
  int in_flight = 1;  // calls under way at once
  std::string json;
  std::string backend = "auto";
  Device device = {};     // on whose memory
  std::string algorithm;  // empty: the usual one
  int segments = 0;       // 0: by size
  int machines = 0;       // 0: where the ranks are; else this machine plays so many
  bool foreign = false;
  bool check = false;
  bool cold = false;
  bool in_place = false;
  bool shared = false;   // one memory for all ranks
  bool explain = false;  // say which algorithms would run, and time nothing
  bool fill = true;      // inputs that can be checked; else whatever the memory holds
  double seconds = 0.5;  // of timing a size, where iterations are not given
  int late_ms = 0;       // the last rank comes so much later to every call
};

// Empty: --help, which is printed then. Throws InvalidArgument (2) for what no number of ranks makes right.
std::optional<BenchOptions> parse_bench_options(const Arguments& arguments);

// One problem a size, smallest first; sizes are rounded to whole elements, at least one a block. Throws InvalidArgument
// (2) when there is no such root.
std::vector<Problem> problems_of(const BenchOptions& options, int ranks, int rank);

// As GroupOptions::algorithms: those of the operation are --algorithm's.
std::string rules_of(const BenchOptions& options);

// --algorithm without its sizes; empty: it names none.
std::string named_algorithm(const BenchOptions& options);

// nccl-tests' name of the type: float, double, half, and ours for the others.
const char* nccl_name_of(comm::DataType type);

}  // namespace reigen::apps::bench
