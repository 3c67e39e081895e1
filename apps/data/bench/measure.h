// The figures of `reigen data bench`.
// Thread rule: pure functions; they start threads and processes of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/bench/worker.h"
#include "reigen/container/container.h"

namespace reigen::apps::data {

struct MeasureOptions {
  int workers = 1;
  Preparation preparation = {};
  double seconds = 2;                             // for each column
  std::vector<std::string> process_command = {};  // of a process with one worker, which serves on demand
};

// Medians over rounds. In a round each thing is measured once, one after the other, on the same samples. Another round
// takes other samples, so `read` is that of a cold container where the container is larger than the memory.
struct Measured {
  int workers = 1;
  double read = 0;                // samples per second, as all rates
  double decode = 0;              // 0 without pictures
  double all = 0;                 // without pictures: read again
  double beside_decode = 0;       // all / decode
  double beside_processes = 0;    // all / that of as many processes with one worker each; 0 for one worker
  std::int64_t samples = 0;       // that were prepared
  std::int64_t memory_first = 0;  // bytes of the process's own after the first round, and after the last
  std::int64_t memory_last = 0;
};
Measured measure(const container::Reader& reader, const MeasureOptions& options);

// Writes "ready". Then for each line "BEGIN COUNT" of stdin it prepares the samples at these positions with the
// workers, and writes samples per second. Ends with stdin. Throws InvalidArgument with exit code 2 for another line.
void on_demand(const container::Reader& reader, const Preparation& preparation, int workers);

std::int64_t most_memory();  // bytes that the process has had at one time, with those of mapped files

}  // namespace reigen::apps::data
