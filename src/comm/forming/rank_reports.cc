#include "comm/forming/rank_reports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "base/text.h"

namespace reigen::comm {

namespace {

long seconds_of(std::chrono::nanoseconds time) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

}  // namespace

std::string describe_rank(int rank, const std::string& host, long pid) {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

Report lost_rank(const std::string& who, const std::string& how, const std::string& group, const std::string& last_call,
                 const std::string& what) {
  return {.what = fmt::format("{} {}, group \"{}\" cannot go on", who, how, group),
          .got = last_call,
          .expected = fmt::format("{}, for which the others wait", what),
          .fix = "see what that rank printed, then resume from the last checkpoint"};
}

std::string silent_for(std::chrono::nanoseconds silence) {
  return fmt::format(
      "has given no sign of life for {} s: stopped (SIGSTOP, a debugger) or out of reach "
      "(REIGEN_COMM_HEARTBEAT_TIMEOUT=seconds has more patience)",
      seconds_of(silence));
}

Report absent_ranks(const std::string& what, std::chrono::nanoseconds waited, const std::vector<int>& absent,
                    const std::string& last_call) {
  return {.what = fmt::format("{}: waited {} s for ranks that are alive but do not come", what, seconds_of(waited)),
          .got = fmt::format("rank {}: {}", absent.front(), last_call),
          .expected = fmt::format("the same call on ranks {}", fmt::join(absent, ", ")),
          .fix = "look for a branch that only some ranks take, or allow more time (REIGEN_TIMEOUT=seconds)"};
}

void warn_of_absent(const std::string& what, std::chrono::nanoseconds waited, const std::vector<int>& absent,
                    const std::string& who, const std::string& last_call, std::chrono::nanoseconds timeout) {
  base::log_warning(
      "{}: waiting for {} s for ranks {}; {} {}; giving up after {} s (REIGEN_TIMEOUT; "
      "REIGEN_COMM_REPORT_AFTER=seconds says this later)",
      what, seconds_of(waited), fmt::join(absent, ", "), who, last_call, seconds_of(timeout));
}

std::string died_while_forming(const std::string& who, const GroupOptions& options) {
  return fmt::format("{} died while group \"{}\" was forming", who, options.name);
}

Report joined_twice(const GroupOptions& options) {
  return {.what = fmt::format("rank {} joins group \"{}\" twice", options.rank, options.name),
          .got = {},
          .expected = "one communicator of a name in a job, each rank once",
          .fix = "give the second group another name (GroupOptions::name), or start every rank with its own RANK"};
}

Report incomplete_group(const GroupOptions& options, const std::vector<int>& missing) {
  return {.what = fmt::format("rank {} of {}: group \"{}\" is not complete after {} s", options.rank, options.size,
                              options.name, seconds_of(options.join_timeout)),
          .got = base::counted(options.size - static_cast<std::int64_t>(missing.size()), "rank"),
          .expected = fmt::format("{}; missing: {}", base::counted(options.size, "rank"), fmt::join(missing, ", ")),
          .fix =
              "see what the missing ranks printed; every rank must create its groups in the same order; "
              "REIGEN_COMM_JOIN_TIMEOUT=seconds waits longer"};
}

void check_same_version(const std::string& what, int rank, std::uint32_t version, std::uint32_t expected) {
  if (version == expected) return;
  throw BackendError(Report{.what = fmt::format("rank {} runs another version of the {} protocol", rank, what),
                            .got = fmt::format("version {}", version),
                            .expected = fmt::format("version {}", expected),
                            .fix = "start all ranks from one build"},
                     ExitCode::kJobMismatch);
}

void check_same_size(const GroupOptions& options, int rank, int ranks) {
  if (ranks == options.size) return;
  throw InvalidArgument(Report{
      .what = fmt::format("ranks {} and {} differ in the size of group \"{}\"", options.rank, rank, options.name),
      .got = fmt::format("{}, says rank {}", base::counted(ranks, "rank"), rank),
      .expected = fmt::format("{}, says rank {}", base::counted(options.size, "rank"), options.rank),
      .fix = "start every rank of a job with the same number of ranks (WORLD_SIZE)"});
}

}  // namespace reigen::comm
