#include "bench/ranks.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/launch/job.h"

namespace reigen::apps::bench {

Ranks find_ranks(std::optional<int> wanted) {
  const launch::Environment environment = launch::detect_environment();
  if (environment.world_size == 1) return {wanted.value_or(Ranks{}.count), false};
  const int ranks = environment.world_size;
  if (wanted.value_or(ranks) != ranks) {
    throw InvalidArgument({.what = "-n is not the number of ranks that are there",
                           .got = fmt::format("-n {}", *wanted),
                           .expected = fmt::format("{} ({} started them)", ranks, environment.source),
                           .fix = "leave -n out"},
                          ExitCode::kUsage);
  }
  return {ranks, true};
}

int start_ranks(const std::string& command, const Arguments& arguments, int ranks, std::size_t memory_per_rank,
                bool on_gpu) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw IoError("cannot find this program: readlink /proc/self/exe: " + error.message());
  launch::JobOptions job;
  job.command = {self.string(), command};
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  job.ranks = ranks;
  job.prefix = "none";
  if (on_gpu) job.share_gpus = launch::ShareGpus::kAuto;
  job.memory_per_rank = memory_per_rank;
  return launch::run_job(job).exit_code;
}

}  // namespace reigen::apps::bench
