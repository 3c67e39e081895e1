// The output of `reigen bench`: nccl-tests' table with some more columns, and the rows as JSON. Thread rule: rank 0
// prints.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/options.h"

namespace reigen::apps::bench {

// One line of the table. The time of an iteration is the time on its slowest rank, in seconds.
struct Row {
  Problem problem;
  std::string algorithm = {};  // the algorithm that was taken
  double p50 = 0;
  double mean = 0;
  double p99 = 0;
  double least = 0;
  std::optional<double> bound = std::nullopt;       // lower bound in seconds, see measure_bound
  std::optional<std::size_t> wrong = std::nullopt;  // wrong elements on all ranks; empty if not checked
  // The share of a core that rank 0 used while it waited for a late rank.
  std::optional<double> waiting_cpu = std::nullopt;
};

void print_header(const Communicator& world, const BenchOptions& options, const std::vector<std::string>& ranks);
void print_row(const Row& row);
void print_footer(const std::vector<Row>& rows);

std::string to_json(const std::vector<Row>& rows, const std::string& backend);

}  // namespace reigen::apps::bench
