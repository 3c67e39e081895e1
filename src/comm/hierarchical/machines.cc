#include "comm/hierarchical/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>

#include "base/host_name.h"
#include "base/log.h"
#include "comm/rank_reports.h"
#include "comm/shared_memory/segment.h"
#include "reigen/base/error.h"

namespace reigen::comm::hierarchical {

namespace {

using shared_memory::Segment;
using shared_memory::SegmentAddress;

constexpr std::size_t kProbeBytes = 4096;
constexpr std::uint32_t kVersion = 1;  // of what ranks tell each other here

// What a rank offers the others to open. Two machines of one make may have the same process numbers and even inodes:
// only the word that lies inside is different.
struct Probe {
  SegmentAddress address;
  std::uint64_t word = 0;
  int ranks = 0;  // of the group, as it was told
  std::string host;
  std::string machine_id;
};

std::string encode(const Probe& probe) {
  const SegmentAddress& at = probe.address;
  return fmt::format("{} {} {} {} {} {} {} {}\n{}", kVersion, probe.ranks, at.pid, at.fd, at.inode, at.size, probe.word,
                     probe.host, probe.machine_id);
}

Probe decode(const std::string& text, int rank, const GroupOptions& options) {
  Probe probe;
  std::istringstream in(text);
  std::uint32_t version = 0;
  in >> version >> probe.ranks;
  check_same_version("groups", rank, version, kVersion);
  check_same_size(options, rank, probe.ranks);
  in >> probe.address.pid >> probe.address.fd >> probe.address.inode >> probe.address.size >> probe.word >> probe.host;
  in.get();
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
    if (error.exit_code() == ExitCode::kOsResource) throw;  // of this rank: no memory, no descriptors
    return false;
  }
}

std::uint64_t random_word() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

class Meeting {
 public:
  explicit Meeting(const GroupOptions& options)
      : options_(options),
        store_(store::make_prefix_store(options.store, "group/" + options.name + "/machines")),
        deadline_(Deadline::after(options.join_timeout)) {
    if (store_->add(fmt::format("joined/{}", options.rank), 1) != 1) throw InvalidArgument(joined_twice(options));
  }

  // What every rank says to `what`; `read` gets it as it comes.
  void exchange(const std::string& what, const std::string& own,
                const std::function<void(int rank, const std::string& text)>& read) {
    const auto key = [&](int rank) { return fmt::format("{}/{}", what, rank); };
    store_->set(key(options_.rank), own);
    for (int q = 0; q < options_.size; ++q) {
      try {
        read(q, q == options_.rank ? own : store_->get(key(q), deadline_));
      } catch (const Timeout&) {
        std::vector<int> missing;
        for (int other = 0; other < options_.size; ++other) {
          if (!store_->try_get(key(other))) missing.push_back(other);
        }
        throw Timeout(incomplete_group(options_, missing));
      }
    }
  }

 private:
  const GroupOptions& options_;
  std::shared_ptr<store::Store> store_;
  Deadline deadline_;
};

void warn_of_strangers(const std::vector<Probe>& probes, const std::vector<bool>& reached, int rank) {
  const Probe& own = probes[static_cast<std::size_t>(rank)];
  for (std::size_t q = 0; q < probes.size(); ++q) {
    if (reached[q] || probes[q].host != own.host || probes[q].machine_id != own.machine_id) continue;
    base::log_warning(
        "rank {} cannot open the memory of rank {} (pid {}), though both run on {}: they talk over the network. Run "
        "both as one user and in one container",
        rank, q, probes[q].address.pid, own.host);
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
  const Probe own{segment->address(), random_word(), options.size, base::host_name(), options.machine_id};
  std::memcpy(segment->data(), &own.word, sizeof(own.word));

  Meeting meeting(options);
  std::vector<Probe> probes;
  meeting.exchange("probe", encode(own),
                   [&](int q, const std::string& text) { probes.push_back(decode(text, q, options)); });
  std::vector<bool> reached(p);
  std::string said;
  for (std::size_t q = 0; q < p; ++q) {
    reached[q] = probes[q].machine_id == own.machine_id && can_open(probes[q]);
    said += reached[q] ? '1' : '0';
  }
  warn_of_strangers(probes, reached, options.rank);
  // Nobody closes its probe before all have tried: each says so only afterwards.
  std::vector<std::vector<bool>> reaches;
  meeting.exchange("reaches", said, [&](int, const std::string& line) {
    std::vector<bool>& row = reaches.emplace_back();
    for (std::size_t q = 0; q < p; ++q) row.push_back(q < line.size() && line[q] == '1');
  });
  return group_by_reach(reaches);
}

}  // namespace reigen::comm::hierarchical
