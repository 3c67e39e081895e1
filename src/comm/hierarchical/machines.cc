#include "comm/hierarchical/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>

#include "base/log.h"
#include "comm/forming/forming.h"
#include "comm/forming/peer_process.h"
#include "comm/forming/rank_reports.h"
#include "comm/shared_memory/segment.h"
#include "reigen/base/error.h"

namespace reigen::comm::hierarchical {

namespace {

using shared_memory::Segment;
using shared_memory::SegmentAddress;

constexpr auto kLookSlice = std::chrono::seconds(1);  // a waiting rank checks this often which ranks are missing
constexpr std::size_t kProbeBytes = 4096;
constexpr std::uint32_t kVersion = 1;  // version of the texts that ranks exchange here

// Memory of a rank that each other rank tries to open, to find out whether both are on the same machine. Two machines
// may use the same process ids, and even the same inodes. Only the random word in the memory shows for certain that a
// rank has opened the right memory.
struct Probe {
  SegmentAddress address;
  std::uint64_t word = 0;
  int ranks = 0;      // size of the group with which the rank was started
  std::string place;  // the line that describes the rank's process (peer_process.h)
  std::string machine_id;
};

std::string encode(const Probe& probe) {
  const SegmentAddress& at = probe.address;
  return fmt::format("{} {} {} {} {} {} {}\n{}\n{}", kVersion, probe.ranks, at.pid, at.fd, at.inode, at.size,
                     probe.word, probe.place, probe.machine_id);
}

Probe decode(const std::string& text, int rank, const GroupOptions& options) {
  Probe probe;
  std::istringstream in(text);
  std::uint32_t version = 0;
  in >> version >> probe.ranks;
  check_same_version("groups", rank, version, kVersion);
  check_same_size(options, rank, probe.ranks);
  in >> probe.address.pid >> probe.address.fd >> probe.address.inode >> probe.address.size >> probe.word;
  in.get();
  std::getline(in, probe.place);
  std::getline(in, probe.machine_id, '\0');
  return probe;
}

bool can_open(const Probe& probe) {
  try {
    const auto segment = Segment::open(probe.address);
    std::uint64_t word = 0;
    std::memcpy(&word, segment->data(), sizeof(word));
    return word == probe.word;
  } catch (const IoError& error) {
    if (error.exit_code() == ExitCode::kOsResource) throw;  // this rank itself lacks memory or descriptors
    return false;
  }
}

std::uint64_t random_word() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// Exchanges a text with all ranks; `what` names the exchange. Then calls `read` with the text of each rank, in rank
// order. An error in `read` ends the forming for all ranks.
void exchange(Forming& forming, const GroupOptions& options, const std::string& what, const std::string& own,
              const std::function<void(int rank, const std::string& text)>& read) {
  const std::vector<std::string> texts = forming.exchange(what, own);
  try {
    for (int q = 0; q < options.size; ++q) read(q, texts[static_cast<std::size_t>(q)]);
  } catch (const Error& error) {
    forming.end_for_all(error);
  }
}

std::string host_of(const Probe& probe) { return probe.place.substr(0, probe.place.find(' ')); }

void warn_of_strangers(const std::vector<Probe>& probes, const std::vector<bool>& reached, int rank) {
  const Probe& own = probes[static_cast<std::size_t>(rank)];
  for (std::size_t q = 0; q < probes.size(); ++q) {
    if (reached[q] || host_of(probes[q]) != host_of(own) || probes[q].machine_id != own.machine_id) continue;
    base::log_warning(
        "rank {} cannot open the memory of rank {} (pid {}), though both run on {}: they talk over the network. Run "
        "both as one user and in one container",
        rank, q, probes[q].address.pid, host_of(own));
    return;
  }
}

}  // namespace

Machines group_by_reach(const std::vector<std::vector<bool>>& reaches) {
  Machines machines;
  for (std::size_t r = 0; r < reaches.size(); ++r) {
    const auto fits = [&](const std::vector<int>& machine) {
      return std::all_of(machine.begin(), machine.end(), [&](int member) {
        const auto m = static_cast<std::size_t>(member);
        return reaches[r][m] && reaches[m][r];
      });
    };
    const auto found = std::find_if(machines.begin(), machines.end(), fits);
    if (found == machines.end()) {
      machines.push_back({static_cast<int>(r)});
    } else {
      found->push_back(static_cast<int>(r));
    }
  }
  return machines;
}

Machines find_machines(const GroupOptions& options) {
  const auto p = static_cast<std::size_t>(options.size);
  const auto segment = Segment::create(kProbeBytes);
  const Probe own{segment->address(), random_word(), options.size, place_of_this_process(), options.machine_id};
  std::memcpy(segment->data(), &own.word, sizeof(own.word));

  std::vector<Probe> probes;
  std::vector<PeerProcess> processes;
  Forming forming(options, "/machines", kLookSlice, [&](const std::vector<int>& missing) {
    for (const int q : missing) {
      const auto at = static_cast<std::size_t>(q);
      if (at < processes.size() && has_died(processes[at])) {
        throw PeerLost(q, died_while_forming(describe_rank(q, processes[at].host, processes[at].pid), options));
      }
    }
  });
  forming.enter();
  exchange(forming, options, "probe", encode(own), [&](int q, const std::string& text) {
    probes.push_back(decode(text, q, options));
    processes.push_back(process_at(probes.back().place));
  });
  std::vector<bool> reached(p);
  std::string said;
  for (std::size_t q = 0; q < p; ++q) {
    reached[q] = probes[q].machine_id == own.machine_id && can_open(probes[q]);
    said += reached[q] ? '1' : '0';
  }
  warn_of_strangers(probes, reached, options.rank);
  // No rank closes its probe before all ranks have tried to open it: each rank enters this exchange only after it has
  // tried, and the exchange needs all ranks.
  std::vector<std::vector<bool>> reaches;
  exchange(forming, options, "reaches", said, [&](int, const std::string& line) {
    std::vector<bool>& row = reaches.emplace_back();
    for (std::size_t q = 0; q < p; ++q) row.push_back(q < line.size() && line[q] == '1');
  });
  return group_by_reach(reaches);
}

}  // namespace reigen::comm::hierarchical
