#include "bench/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace reigen::apps::bench {

namespace {

// In GB/s, with a GB of 10^9 bytes.
double algorithm_bandwidth(const Row& row) { return static_cast<double>(row.problem.bytes()) / row.p50 / 1e9; }

double bus_bandwidth(const Row& row) {
  return algorithm_bandwidth(row) * bus_factor(row.problem.operation, row.problem.ranks);
}

// The number with as many decimals, at most two, as fit into the column.
std::string in_width(double value, int width) {
  int decimals = 2;
  for (double limit = 1; limit < value; limit *= 10) --width;
  if (width < 3) decimals = width < 2 ? 0 : 1;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string microseconds(double seconds) { return in_width(seconds * 1e6, 7); }

std::string what_is_called(Operation operation, const MockUp* as) {
  const std::string name = traits_of(operation).name;
  return as == nullptr ? name : name + " as " + as->name;
}

std::string wrong_text(const Row& row) { return row.wrong ? fmt::format("{}", *row.wrong) : "N/A"; }

}  // namespace

void print_header(const Communicator& world, const BenchOptions& options, const std::vector<std::string>& ranks) {
  const std::string iterations = options.iterations > 0 ? fmt::format("{}", options.iterations) : "auto";
  fmt::print("# reigen bench version " REIGEN_VERSION "\n# Collective test starting: {}\n",
             what_is_called(options.operation, options.as));
  fmt::print("# nRanks {} minBytes {} maxBytes {} step: {}(factor) warmup iters: {} iters: {} validation: {}\n",
             world.size(), options.smallest, options.largest, options.factor, options.warmup, iterations,
             options.check ? 1 : 0);
  const bool on_host = world.device().is_cpu();
  fmt::print("# backend: {}  memory: {}{}, {}\n#\n# Using ranks\n", on_host ? world.backend() : world.device_backend(),
             on_host ? "" : "a device's, ",
             options.shared    ? "shared by all ranks"
             : options.foreign ? "of the process"
                               : "of the communicator",
             options.cold ? "cold" : "warm");
  for (const std::string& rank : ranks) fmt::print("# {}\n", rank);
  fmt::print(
      "#\n"
      "#{:>66}\n"
      "#{:>11}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>7}  {:>7}  {:>6}\n"
      "#{:>11}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>7}  {:>7}  {:>6}\n",
      options.in_place || options.shared || options.operation == Operation::kBroadcast ? "in-place" : "out-of-place",
      "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "mean", "p99", "min", "bound",
      "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)");
  std::fflush(stdout);
}

void print_row(const Row& row) {
  const Problem& problem = row.problem;
  const OperationTraits& traits = traits_of(problem.operation);
  const std::string bound = row.bound ? fmt::format("{:.1f}", 100 * *row.bound / row.p50) : "N/A";
  fmt::print("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>7}  {:>7}  {:>6}\n",
             problem.bytes(), problem.count, nccl_name_of(problem.type),
             traits.reduces ? comm::name_of(problem.op) : "none", problem.has_root() ? problem.root : -1,
             microseconds(row.p50), in_width(algorithm_bandwidth(row), 6), in_width(bus_bandwidth(row), 6),
             wrong_text(row), microseconds(row.mean), microseconds(row.p99), microseconds(row.least), bound);
  if (row.waiting_cpu) fmt::print("# rank 0 used {:.2f} % of a core while it waited\n", 100 * *row.waiting_cpu);
  std::fflush(stdout);
}

void print_footer(const std::vector<Row>& rows) {
  double bandwidth = 0;
  std::size_t wrong = 0;
  for (const Row& row : rows) {
    bandwidth += bus_bandwidth(row) / static_cast<double>(rows.size());
    wrong += row.wrong.value_or(0);
  }
  fmt::print(
      "# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:g}\n#\n"
      "# Collective test concluded: {}\n",
      wrong, wrong == 0 ? "OK" : "FAILED", bandwidth,
      what_is_called(rows.front().problem.operation, rows.front().problem.as));
  std::fflush(stdout);
}

std::string to_json(const std::vector<Row>& rows, const std::string& backend) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object;
    object["op"] = traits_of(row.problem.operation).name;
    if (row.problem.as != nullptr) object["as"] = row.problem.as->name;
    object["ranks"] = row.problem.ranks;
    object["bytes"] = row.problem.bytes();
    object["dtype"] = comm::name_of(row.problem.type);
    object["backend"] = backend;
    object["algorithm"] = row.algorithm;
    object["time_us_p50"] = row.p50 * 1e6;
    object["time_us_min"] = row.least * 1e6;
    object["algbw_gbps"] = algorithm_bandwidth(row);
    object["busbw_gbps"] = bus_bandwidth(row);
    object["bound_fraction"] = row.bound ? nlohmann::ordered_json(*row.bound / row.p50) : nlohmann::ordered_json();
    object["wrong"] = row.wrong ? nlohmann::ordered_json(*row.wrong) : nlohmann::ordered_json();
    if (row.waiting_cpu) object["waiting_cpu"] = *row.waiting_cpu;
    array.push_back(object);
  }
  return array.dump(2) + "\n";
}

}  // namespace reigen::apps::bench
