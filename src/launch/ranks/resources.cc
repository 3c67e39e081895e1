#include "launch/ranks/resources.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

std::string who_needs(int ranks) { return fmt::format("{} {}", ranks, ranks == 1 ? "rank needs" : "ranks need"); }

}  // namespace

void check_memory(int ranks, std::size_t memory_per_rank, const AvailableMemory& available) {
  if (available.source.empty()) return;
  const auto count = static_cast<std::uint64_t>(ranks);
  if (count <= available.bytes / std::max<std::size_t>(1, memory_per_rank)) return;
  const std::uint64_t fit = available.bytes / memory_per_rank;
  throw IoError(
      {.what = fmt::format("{} more memory than there is", who_needs(ranks)),
       .got = fmt::format("{} x {} = {}", ranks, format_bytes(memory_per_rank), format_bytes(count * memory_per_rank)),
       .expected = fmt::format("at most {} ({})", format_bytes(available.bytes), available.source),
       .fix = fit > 0 ? fmt::format("at most -n {} on this machine now", fit) : "free memory, or use a larger machine"},
      ExitCode::kOsResource);
}

rlimit check_limits(int ranks) {
  const auto count = static_cast<rlim_t>(ranks);
  rlimit processes{};
  REIGEN_SYSCALL(::getrlimit(RLIMIT_NPROC, &processes));
  if (::geteuid() != 0 && processes.rlim_cur != RLIM_INFINITY && processes.rlim_cur < count + 2) {
    throw IoError({.what = fmt::format("{} more processes than this user may have", who_needs(ranks)),
                   .got = fmt::format("{} and 2 more", ranks),
                   .expected = fmt::format("at most {} (RLIMIT_NPROC)", processes.rlim_cur),
                   .fix = "fewer ranks, or raise the limit: ulimit -u"},
                  ExitCode::kOsResource);
  }
  constexpr rlim_t kPerRank = 6;  // stdout, stderr, pidfd, log file, flight record, the rank's connection to the store
  constexpr rlim_t kOwn = 40;
  rlimit files{};
  REIGEN_SYSCALL(::getrlimit(RLIMIT_NOFILE, &files));
  const rlim_t needed = count * kPerRank + kOwn;
  if (files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= needed) return files;
  if (files.rlim_max == RLIM_INFINITY || files.rlim_max >= needed) {
    const rlimit raised{needed, files.rlim_max};
    REIGEN_SYSCALL(::setrlimit(RLIMIT_NOFILE, &raised));
    return files;
  }
  throw IoError({.what = fmt::format("{} more open files than this process may have", who_needs(ranks)),
                 .got = fmt::format("{} x {} + {} = {}", ranks, kPerRank, kOwn, needed),
                 .expected = fmt::format("at most {} (RLIMIT_NOFILE)", files.rlim_max),
                 .fix = "fewer ranks, or raise the limit: ulimit -Hn"},
                ExitCode::kOsResource);
}

}  // namespace reigen::launch
