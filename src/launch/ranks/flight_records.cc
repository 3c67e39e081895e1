#include "launch/ranks/flight_records.h"

#include "base/log.h"
#include "flight/json.h"
#include "flight/memory.h"
#include "flight/read.h"
#include "flight/recorder.h"
#include "flight/summary.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

std::vector<flight::ReadRank> read_all(const std::vector<UniqueFd>& memory) {
  std::vector<flight::ReadRank> ranks;
  for (const UniqueFd& one : memory) {
    const flight::MappedMemory mapped(one.get(), flight::MappedMemory::Access::kRead);
    ranks.push_back(flight::read_record(mapped.record()));
  }
  return ranks;
}

}  // namespace

FlightRecords::FlightRecords(int ranks, const std::string& job) {
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      memory_.push_back(flight::make_memory({.rank = rank, .size = ranks, .job = job}));
    }
  } catch (const IoError& error) {
    base::log_warning("no flight records of this job: {}", error.what());
    memory_.clear();
  }
}

int FlightRecords::descriptor(int rank) const {
  return memory_.empty() ? -1 : memory_[static_cast<std::size_t>(rank)].get();
}

std::string FlightRecords::report() const {
  try {
    const std::string lines = flight::summary(read_all(memory_), flight::time_now(), kReportLines);
    return lines.empty() ? lines : "reigen: what the ranks called last (flight record)\n" + lines;
  } catch (const Error& error) {
    return std::string("reigen: no flight record: ") + error.what() + "\n";
  }
}

bool FlightRecords::all_agree() const {
  try {
    return flight::all_agree(read_all(memory_));
  } catch (const Error&) {
    return false;  // report() says why
  }
}

void FlightRecords::save(const std::string& path) const { flight::write_json_lines(path, read_all(memory_)); }

}  // namespace reigen::launch
