#include "base/machine/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

#include "base/environment.h"
#include "base/machine/slurm.h"
#include "base/text.h"

namespace reigen::base {

namespace {

constexpr double kRounding = 1e-6;  // tolerance, so that three thirds of a processor count as a whole processor

int count_of(const CpuMask& mask) { return static_cast<int>(std::count(mask.begin(), mask.end(), true)); }

// The processors that a process may run on. Nothing if the process has ended or is in another namespace.
std::optional<CpuMask> mask_of(pid_t pid) {
  for (std::size_t cpus = 1024; cpus <= 65536; cpus *= 2) {  // the kernel refuses a set smaller than its own
    cpu_set_t* set = CPU_ALLOC(cpus);
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    CpuMask mask;
    if (::sched_getaffinity(pid, size, set) == 0) {
      for (std::size_t cpu = 0; cpu < cpus; ++cpu) mask.push_back(CPU_ISSET_S(cpu, size, set));
    }
    CPU_FREE(set);
    if (count_of(mask) > 0) return mask;
  }
  return std::nullopt;
}

CpuMask own_mask() {
  if (auto mask = mask_of(0)) return *mask;
  return CpuMask(std::max(1U, std::thread::hardware_concurrency()), true);
}

// The CPU quota of a control group, as a number of processors. In version 2 it is in cpu.max ("40000 100000"), in
// version 1 in two files. The text "max" or -1 means that the group has no quota.
std::optional<double> quota_of(const ControlGroup& group) {
  double quota = 0;
  double period = 100000;
  if (group.is_unified) {
    std::ifstream file(group.folder + "/cpu.max");
    if (!(file >> quota)) return std::nullopt;
    file >> period;
  } else {
    if (!(std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota)) return std::nullopt;
    if (!(std::ifstream(group.folder + "/cpu.cfs_period_us") >> period)) return std::nullopt;
  }
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

int number_in(const char* variable) {
  const auto text = get_environment(variable);
  int value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return std::max(value, 0);
}

// The number of cores that the processors of the mask belong to. Processors of one core report the same list of
// siblings; a processor that reports no list counts as a core of its own.
int count_cores(const CpuMask& mask, const std::string& root) {
  std::set<std::string> cores;
  for (std::size_t cpu = 0; cpu < mask.size(); ++cpu) {
    if (!mask[cpu]) continue;
    std::string siblings;
    std::ifstream(fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu)) >> siblings;
    cores.insert(siblings.empty() ? fmt::format("cpu{}", cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

struct Limit {
  double cores = 0;  // processors of all ranks together
  std::string text;
};

std::string processors(int count) { return counted(count, "processor"); }

void lower(Limit& limit, double cores, const std::string& text) {
  if (cores < limit.cores) limit = {cores, text};
}

double rounded_up(double quota) { return std::max(1.0, std::ceil(quota - kRounding)); }

int whole(double cores) { return std::max(1, static_cast<int>(std::floor(cores + kRounding))); }

}  // namespace

Cores find_cores(const std::string& root) {
  Cores cores;
  cores.mask = own_mask();
  cores.online = std::max(count_of(cores.mask), static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  for (ControlGroup& group : control_groups("cpu", root)) {
    const auto quota = quota_of(group);
    if (!quota) continue;
    const std::string file = group.folder + (group.is_unified ? "/cpu.max" : "/cpu.cfs_quota_us");
    cores.quotas.push_back({*quota, file, std::move(group)});
  }
  cores.on_node = number_in("SLURM_CPUS_ON_NODE");
  if (in_slurm_step()) cores.per_task = number_in("SLURM_CPUS_PER_TASK");
  return cores;
}

CoreShare share_cores(const Cores& cores, const std::vector<CpuMask>& masks, const std::vector<int>& in_quota,
                      int in_this_process) {
  const int ranks = static_cast<int>(masks.size());
  CpuMask all(cores.mask.size());
  std::vector<int> users(cores.mask.size());
  for (const CpuMask& mask : masks) {
    for (std::size_t cpu = 0; cpu < std::min(mask.size(), all.size()); ++cpu) {
      if (mask[cpu]) all[cpu] = true;
      if (mask[cpu]) users[cpu] += 1;
    }
  }
  double own = 0;
  for (std::size_t cpu = 0; cpu < cores.mask.size(); ++cpu) {
    if (cores.mask[cpu]) own += 1.0 / std::max(1, users[cpu]);
  }
  double for_threads = own;
  Limit limit{static_cast<double>(count_of(all)), processors(count_of(all))};
  for (std::size_t i = 0; i < cores.quotas.size(); ++i) {
    const double quota = cores.quotas[i].cores;
    const int sharers = std::max(1, in_quota[i]);
    own = std::min(own, quota / sharers);
    for_threads = std::min(for_threads, rounded_up(quota) / sharers);
    // Only `sharers` of the ranks are in the control group with this quota. The limit assumes that each other rank has
    // a share of the same size.
    lower(limit, rounded_up(quota) * ranks / sharers,
          fmt::format("a quota of {:.3g} cores ({})", quota, cores.quotas[i].file));
  }
  const auto at_most = [&](double share, double total, const std::string& text) {
    own = std::min(own, share);
    for_threads = std::min(for_threads, share);
    lower(limit, total, text);
  };
  if (cores.on_node > 0) {
    at_most(static_cast<double>(cores.on_node) / ranks, cores.on_node, processors(cores.on_node) + " from Slurm");
  }
  if (cores.per_task > 0) {
    const double share = static_cast<double>(cores.per_task) / std::max(1, in_this_process);
    at_most(share, share * ranks, fmt::format("{} a task from Slurm", processors(cores.per_task)));
  }
  return {.threads = whole(for_threads),
          .cores = own,
          .ranks = ranks,
          .ranks_in_process = std::max(1, in_this_process),
          .is_first = true,
          .total = whole(limit.cores),
          .limit = limit.text};
}

CoreShare share_cores(int ranks, const Cores& cores) {
  const int count = std::max(1, ranks);
  return share_cores(cores, std::vector<CpuMask>(static_cast<std::size_t>(count), cores.mask),
                     std::vector<int>(cores.quotas.size(), count), count);
}

CoreShare share_cores(const std::vector<pid_t>& ranks_here, std::size_t rank, const std::string& root) {
  const Cores cores = find_cores(root);
  const pid_t self = ::getpid();
  std::vector<CpuMask> masks;
  std::vector<int> in_quota(cores.quotas.size());
  int own = 0;
  for (const pid_t pid : ranks_here) {
    if (pid == self) ++own;
    const bool seen = pid != kUnseen && pid != self;
    masks.push_back(seen ? mask_of(pid).value_or(cores.mask) : cores.mask);
    for (std::size_t i = 0; i < cores.quotas.size(); ++i) {
      if (pid == self || (seen && is_below(cores.quotas[i].group, "cpu", pid, root))) in_quota[i] += 1;
    }
  }
  if (masks.empty()) return share_cores(1, cores);
  CoreShare share = share_cores(cores, masks, in_quota, own);
  share.is_first = rank == 0;
  return share;
}

bool have_cores(int ranks, int threads) {
  const Cores cores = find_cores();
  const long wanted = static_cast<long>(std::max(1, ranks)) * threads;
  const bool enough = std::all_of(cores.quotas.begin(), cores.quotas.end(), [&](const CpuQuota& quota) {
    return static_cast<double>(wanted) <= quota.cores + kRounding;
  });
  return enough && threads <= count_of(cores.mask) && wanted <= cores.online;
}

bool have_cores(const CoreShare& share, int threads) { return share.cores + kRounding >= threads; }

bool is_default_count(const Cores& cores, int threads, const std::string& root) {
  if (threads == count_of(cores.mask) || threads == cores.online) return true;
  return threads == count_cores(cores.mask, root);
}

// OMP_NUM_THREADS may be a list with a number for each nested level, such as "4,2"; the first number counts.
int threads_by_environment() {
  const int threads = number_in("OMP_NUM_THREADS");
  return threads > 0 ? threads : number_in("MKL_NUM_THREADS");
}

std::string describe_shortage(const CoreShare& share, int threads) {
  if (static_cast<long>(share.ranks) * threads <= share.total) return {};
  return fmt::format("{} x {} share {}: each gets a part of the speed", counted(share.ranks, "rank"),
                     counted(threads, "thread"), share.limit);
}

}  // namespace reigen::base
