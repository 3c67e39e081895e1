// What `reigen bench` shows: nccl-tests' table with some columns more, and rows as JSON. Thread rule: rank 0 prints.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/options.h"

namespace reigen::apps::bench {

// Seconds of an iteration are those of its slowest rank.
struct Row {
  Problem problem;
  std::string algorithm = {};  // that was taken
  double p50 = 0;
  double mean = 0;
  double p99 = 0;
  double least = 0;
  std::optional<double> bound = std::nullopt;        // seconds, see measure_bound
  std::optional<std::size_t> wrong = std::nullopt;   // elements of all ranks; empty: not checked
  std::optional<double> waiting_cpu = std::nullopt;  // of a core, by rank 0 while it waited for a late rank
};

void print_header(const Communicator& world, const BenchOptions& options, const std::vector<std::string>& ranks);
void print_row(const Row& row);
void print_footer(const std::vector<Row>& rows);

std::string to_json(const std::vector<Row>& rows, const std::string& backend);

}  // namespace reigen::apps::bench
