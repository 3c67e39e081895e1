#include "flight/find.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/machine/process_state.h"
#include "base/text.h"
#include "flight/memory.h"
#include "flight/recorder.h"
#include "reigen/base/unique_fd.h"

namespace reigen::flight {

namespace {

constexpr std::size_t kShownCommand = 100;

// The memory of a flight record, found among the open descriptors of the process `holder`.
struct Sight {
  pid_t holder = 0;
  std::string path;  // /proc/PID/fd/N
  ino_t inode = 0;
};

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

std::optional<uid_t> owner_of(pid_t pid) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

// The records among the descriptors of a process. `error`: errno if the descriptors may not be read, else 0.
std::vector<Sight> look_into(pid_t pid, int& error) {
  std::vector<Sight> sights;
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  const Directory directory(::opendir(folder.c_str()));
  error = directory ? 0 : errno;
  if (!directory) return sights;
  const std::string wanted = fmt::format("/memfd:{}", kMemoryName);
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = folder + "/" + entry->d_name;
    std::array<char, 64> target{};
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size() - 1);
    if (length < 0 || !std::string_view(target.data()).starts_with(wanted)) continue;
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) sights.push_back({pid, path, status.st_ino});
  }
  return sights;
}

std::vector<Sight> look_below(pid_t pid) {
  int ignored = 0;
  std::vector<Sight> sights = look_into(pid, ignored);
  for (const pid_t child : base::children_of(pid)) {
    if (!sights.empty()) break;
    sights = look_below(child);
  }
  return sights;
}

std::vector<Sight> look_everywhere(uid_t user) {
  std::vector<Sight> sights;
  const Directory processes(::opendir("/proc"));
  while (const dirent* entry = processes ? ::readdir(processes.get()) : nullptr) {
    const auto pid = base::parse<pid_t>(entry->d_name);
    if (!pid || owner_of(*pid) != user) continue;
    int ignored = 0;
    for (Sight& sight : look_into(*pid, ignored)) sights.push_back(std::move(sight));
  }
  return sights;
}

// Returns nothing if the record has just disappeared, or is of another version of Reigen.
std::optional<ReadRank> open_and_read(const Sight& sight) {
  const UniqueFd memory(::open(sight.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory || !is_record(memory.get())) return std::nullopt;
  const MappedMemory mapped(memory.get(), MappedMemory::Access::kRead);
  if (mapped.record().header.magic != kMagic) return std::nullopt;
  return read_record(mapped.record());
}

std::string command_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!text.empty()) text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  if (text.size() > kShownCommand) text = text.substr(0, kShownCommand) + "...";
  return text;
}

struct Gathered {
  std::map<ino_t, ReadRank> records;
  std::map<pid_t, int> holders;  // the number of records that each process holds open
  std::map<ino_t, std::set<pid_t>> held_by;
};

bool is_of_process(std::uint64_t job, const ReadRank& rank) { return job == job_of_process(rank.pid); }

// Adds to `rank` the groups and operations of `more`, a second record of the same process. A process has such a second
// record if its program constructs a Communicator itself, without reigen::init(). The second record contains no
// identity of a job, only the hash of the process id.
void add_groups(ReadRank& rank, const ReadRank& more) {
  const auto knows = [&](const std::string& name) {
    return std::any_of(rank.groups.begin(), rank.groups.end(), [&](const ReadGroup& one) { return one.name == name; });
  };
  std::set<std::string> taken;
  for (const ReadGroup& group : more.groups) {
    if (!knows(group.name)) taken.insert(group.name);
  }
  std::copy_if(more.groups.begin(), more.groups.end(), std::back_inserter(rank.groups),
               [&](const ReadGroup& group) { return taken.contains(group.name); });
  std::copy_if(more.operations.begin(), more.operations.end(), std::back_inserter(rank.operations),
               [&](const ReadOperation& operation) { return taken.contains(operation.group); });
}

// A process may have two records (see add_groups()). This function moves the contents of its second record to the
// record that it has as a rank of a job. Processes of two containers may have written the same pid into their records,
// so the contents are moved only if one process holds both records open.
void join_ranks_to_jobs(std::map<std::uint64_t, Gathered>& jobs) {
  std::map<std::pair<pid_t, pid_t>, ReadRank*> ranks;  // by the process that holds the record, and the pid in it
  for (auto& [job, gathered] : jobs) {
    for (auto& [inode, rank] : gathered.records) {
      if (rank.pid == 0 || is_of_process(job, rank)) continue;
      for (const pid_t holder : gathered.held_by[inode]) ranks[{holder, rank.pid}] = &rank;
    }
  }
  for (auto& entry : jobs) {
    std::erase_if(entry.second.records, [&](const auto& record) {
      if (!is_of_process(entry.first, record.second)) return false;
      for (const pid_t holder : entry.second.held_by[record.first]) {
        const auto rank = ranks.find({holder, record.second.pid});
        if (rank == ranks.end()) continue;
        add_groups(*rank->second, record.second);
        return true;
      }
      return false;
    });
  }
  std::erase_if(jobs, [](const auto& entry) { return entry.second.records.empty(); });
}

// The records of each job, by the hash of the job's identity.
std::map<std::uint64_t, Gathered> gather(const std::vector<Sight>& sights) {
  std::map<ino_t, std::optional<ReadRank>> read;
  std::map<std::uint64_t, Gathered> jobs;
  for (const Sight& sight : sights) {
    auto at = read.find(sight.inode);
    if (at == read.end() || !at->second) at = read.insert_or_assign(sight.inode, open_and_read(sight)).first;
    if (!at->second) continue;
    Gathered& job = jobs[at->second->job];
    job.records.try_emplace(sight.inode, *at->second);
    ++job.holders[sight.holder];
    job.held_by[sight.inode].insert(sight.holder);
  }
  join_ranks_to_jobs(jobs);
  return jobs;
}

LiveJob to_job(Gathered gathered) {
  LiveJob job;
  int most = 0;
  for (const auto& [pid, count] : gathered.holders) {
    if (count <= most) continue;
    most = count;
    job.pid = pid;
  }
  job.command = command_of(job.pid);
  for (auto& [inode, rank] : gathered.records) job.ranks.push_back(std::move(rank));
  std::stable_sort(job.ranks.begin(), job.ranks.end(),
                   [](const ReadRank& a, const ReadRank& b) { return a.rank < b.rank; });
  return job;
}

bool is_used(const Gathered& job) {
  return std::any_of(job.records.begin(), job.records.end(), [](const auto& entry) { return entry.second.pid != 0; });
}

}  // namespace

std::vector<LiveJob> find_jobs() {
  std::map<std::uint64_t, Gathered> found = gather(look_everywhere(::geteuid()));
  // The launcher gives a record to each of its ranks. If a program never calls reigen::init(), its records stay empty.
  // Jobs with only empty records are shown only if there are no other jobs.
  if (std::any_of(found.begin(), found.end(), [](const auto& entry) { return is_used(entry.second); })) {
    std::erase_if(found, [](const auto& entry) { return !is_used(entry.second); });
  }
  std::vector<LiveJob> jobs;
  for (auto& [hash, gathered] : found) jobs.push_back(to_job(std::move(gathered)));
  std::sort(jobs.begin(), jobs.end(), [](const LiveJob& a, const LiveJob& b) { return a.pid < b.pid; });
  return jobs;
}

LiveJob find_job(pid_t pid) {
  const auto owner = owner_of(pid);
  if (!owner) {
    throw InvalidArgument(
        {.what = fmt::format("there is no process {}", pid), .fix = "`reigen flight` alone finds the job that runs"},
        ExitCode::kInputMissing);
  }
  int error = 0;
  std::vector<Sight> sights = look_into(pid, error);
  if (error == EACCES || error == EPERM) {
    throw IoError({.what = fmt::format("process {} may not be looked into: {}", pid, base::errno_text(error)),
                   .got = fmt::format("a process of user {}", *owner),
                   .expected = fmt::format("one of user {}", ::geteuid()),
                   .fix = "ask its owner, or root"},
                  ExitCode::kPermission);
  }
  if (sights.empty()) sights = look_below(pid);
  const std::map<std::uint64_t, Gathered> own = gather(sights);
  // A launcher may itself be a rank of another job. In this case the result is the job that the launcher started. This
  // is the job with the most records, among the jobs in which a rank has begun to record.
  const auto best = std::max_element(own.begin(), own.end(), [](const auto& a, const auto& b) {
    return std::pair(is_used(a.second), a.second.records.size()) <
           std::pair(is_used(b.second), b.second.records.size());
  });
  if (best == own.end()) {
    throw InvalidArgument({.what = fmt::format("process {} has no flight record", pid),
                           .got = command_of(pid),
                           .expected = "a launcher or a rank of a job that uses Reigen",
                           .fix = "`reigen flight` alone finds the job that runs"},
                          ExitCode::kInputMissing);
  }
  std::map<std::uint64_t, Gathered> all = gather(look_everywhere(*owner));
  const auto whole = all.find(best->first);
  return to_job(whole != all.end() ? whole->second : best->second);
}

}  // namespace reigen::flight
