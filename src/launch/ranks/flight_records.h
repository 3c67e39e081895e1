// The ranks' flight records (the last calls of each rank), in memory of the launcher, which remains intact when a rank
// is killed.
#pragma once

#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

class FlightRecords {
 public:
  static constexpr int kReportLines = 24;

  // Makes memory for each rank. If that fails, a warning says so and the ranks keep their own records.
  FlightRecords(int ranks, const std::string& job);

  int descriptor(int rank) const;  // of the memory that `rank` inherits; -1 if there is no memory
  // Lines for the failure report; empty if nothing helpful was recorded.
  std::string report() const;
  // True if all ranks have completed the same calls, so that report() would name no difference.
  bool all_agree() const;
  // Writes all records as JSON lines. Throws IoError.
  void save(const std::string& path) const;

 private:
  std::vector<UniqueFd> memory_;
};

}  // namespace reigen::launch
