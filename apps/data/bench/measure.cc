#include "data/bench/measure.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "data/bench/processes.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::apps::data {

namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kWarmUp = 32;         // samples of each worker
constexpr double kLeastReadSeconds = 0.005;  // of a round; reading from memory takes microseconds

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Worker> make_workers(const container::Reader& reader, const Preparation& preparation, int count) {
  std::vector<Worker> workers;
  for (int i = 0; i < count; ++i) workers.emplace_back(reader, preparation);
  run(workers, Phase::kAll, 0, kWarmUp * count);
  return workers;
}

// Memory that is no file's. The pages of a mapped container are the kernel's to take back.
std::int64_t own_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const std::string name = "RssAnon:";
    if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * static_cast<std::int64_t>(kKiB);
  }
  return 0;
}

// Samples of one worker in a round. They are whole passes over a small container, so that all rounds have the same
// pictures.
std::int64_t samples_of_round(std::vector<Worker>& workers, std::int64_t size, double seconds) {
  // Samples that were read before may be in a cache, so each try takes others. The first tries are short.
  const double of_round = seconds / kRounds;
  const auto count = static_cast<std::int64_t>(workers.size());
  std::int64_t begin = kWarmUp * count;
  double rate = 0;
  for (std::int64_t tried = kWarmUp * count;; tried *= 4) {
    rate = run(workers, Phase::kAll, begin, tried);
    begin += tried;
    if (static_cast<double>(tried) / rate > of_round / 8) break;
  }
  const auto wanted = std::max<std::int64_t>(static_cast<std::int64_t>(rate * of_round) / count, 8);
  return wanted < size ? wanted : (wanted + size / 2) / size * size;
}

double read_rate(std::vector<Worker>& workers, std::int64_t begin, std::int64_t count) {
  std::vector<double> rates;
  double seconds = 0;
  while (seconds < kLeastReadSeconds) {
    rates.push_back(run(workers, Phase::kRead, begin, count));
    seconds += static_cast<double>(count) / rates.back();
    if (rates.size() == 1 && seconds >= kLeastReadSeconds) break;  // the disk is the slower part
  }
  return median_of(rates);
}

}  // namespace

Measured measure(const container::Reader& reader, const MeasureOptions& options) {
  const bool has_picture = picture_field(reader).has_value();
  std::vector<Worker> workers = make_workers(reader, options.preparation, options.workers);
  const std::int64_t each = samples_of_round(workers, reader.size(), options.seconds);
  const std::int64_t count = each * options.workers;
  std::optional<WorkerProcesses> processes;
  if (options.workers > 1) processes.emplace(options.process_command, options.workers);
  std::vector<double> read;
  std::vector<double> decode;
  std::vector<double> all;
  std::vector<double> beside_decode;
  std::vector<double> beside_processes;
  Measured result{.workers = options.workers};
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t begin = round * count;
    read.push_back(read_rate(workers, begin, count));
    if (has_picture) decode.push_back(run(workers, Phase::kDecode, begin, count));
    double apart = 0;
    const bool processes_first = round % 2 == 1;
    if (processes && processes_first) apart = processes->run(begin, each);
    all.push_back(run(workers, Phase::kAll, begin, count));
    if (processes && !processes_first) apart = processes->run(begin, each);
    if (has_picture) beside_decode.push_back(all.back() / decode.back());
    if (processes) beside_processes.push_back(all.back() / apart);
    result.samples += count;
    result.memory_last = own_memory();
    if (round == 0) result.memory_first = result.memory_last;
  }
  result.read = median_of(read);
  result.decode = median_of(decode);
  result.all = median_of(all);
  result.beside_decode = median_of(beside_decode);
  result.beside_processes = median_of(beside_processes);
  return result;
}

void on_demand(const container::Reader& reader, const Preparation& preparation, int workers) {
  std::vector<Worker> team = make_workers(reader, preparation, workers);
  fmt::print("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::int64_t begin = -1;
    std::int64_t count = 0;
    if (!(words >> begin >> count) || begin < 0 || count < 1) {
      throw InvalidArgument(Report{.what = "a line of stdin is no request",
                                   .got = line,
                                   .expected = "BEGIN COUNT: the first position, and a number of samples",
                                   .fix = "0 1000"},
                            ExitCode::kUsage);
    }
    fmt::print("{:.6g}\n", run(team, Phase::kAll, begin, count));
    std::fflush(stdout);
  }
}

std::int64_t most_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * static_cast<std::int64_t>(kKiB);
}

}  // namespace reigen::apps::data
