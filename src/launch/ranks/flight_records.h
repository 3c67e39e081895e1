// The ranks' flight records as the launcher holds them: they are whole when a rank has been killed.
#pragma once

#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

class FlightRecords {
 public:
  static constexpr int kReportLines = 24;

  // Memory for each rank; without any (a warning says so) the ranks keep their own.
  FlightRecords(int ranks, const std::string& job);

  int descriptor(int rank) const;  // for the rank to inherit; -1: none
  // Lines for the report of a failure; empty when nothing was recorded that helps.
  std::string report() const;
  // All ranks have completed the same calls: the report would name no difference.
  bool all_agree() const;
  // Everything, as JSON lines. Throws IoError.
  void save(const std::string& path) const;

 private:
  std::vector<UniqueFd> memory_;
};

}  // namespace reigen::launch
