// reigen tune: measures the algorithms of a backend, and stores which algorithm is the fastest from which size on.
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "base/machine/host_name.h"
#include "bench/ranks.h"
#include "comm/tuning/table.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"
#include "reigen/launch/environment.h"
#include "reigen_commands.h"
#include "tune/options.h"
#include "tune/print.h"
#include "tune/probe.h"

namespace reigen::apps::tune {

namespace {

namespace tuning = comm::tuning;

void explain(const TuneOptions& options, int ranks) {
  const std::filesystem::path path = tuning::cache_path(options.family, ranks);
  const auto table = tuning::read_cache(options.family, ranks);
  fmt::print("# backend {}, {} ranks\n", comm::name_of(options.family), ranks);
  if (table) {
    fmt::print("# with the algorithms \"{}\", from {}, measured on {}:\n", comm::kTuned, path.string(), table->host);
    print_table(*table);
    fmt::print("# rules {}\n", table->rules);
  } else {
    fmt::print("# built in; nothing was tuned, {} is not there\n", path.string());
    print_table({.host = base::host_name(), .family = options.family, .ranks = ranks});
  }
}

void make_folder_of(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (!error) return;
  throw IoError(Report{.what = fmt::format("cannot make the folder {}", path.parent_path().string()),
                       .got = error.message(),
                       .fix = "set XDG_CACHE_HOME to a folder that can be written"},
                error.value() == EACCES ? ExitCode::kPermission : ExitCode::kIo);
}

int be_rank(const TuneOptions& options, const std::filesystem::path& path) {
  const bool keeps = launch::detect_environment().rank == 0;
  std::optional<format::AtomicFile> file;  // opened before the work, so that a bad path does not cost a run
  if (keeps) {
    make_folder_of(path);
    file.emplace(path);
  }
  const tuning::Table table = probe(options);
  if (!keeps) return 0;
  fmt::print("# reigen tune: backend {}, {} ranks, host {}\n", comm::name_of(table.family), table.ranks, table.host);
  print_table(table);
  const std::string text = tuning::to_text(table);
  file->write(std::as_bytes(std::span(text)));
  file->commit();
  fmt::print("# written to {}; taken by groups with the algorithms \"{}\"\n", path.string(), comm::kTuned);
  return 0;
}

int run_tune(const Arguments& arguments) {
  const auto options = parse_tune_options(arguments);
  if (!options) return 0;
  const bench::Ranks ranks = bench::find_ranks(options->ranks);
  if (ranks.count < 2) {
    throw InvalidArgument({.what = "one rank has nothing to choose",
                           .got = fmt::format("-n {}", ranks.count),
                           .expected = "at least two ranks",
                           .fix = "-n 2"},
                          ExitCode::kUsage);
  }
  if (options->explain) {
    explain(*options, ranks.count);
    return 0;
  }
  const std::filesystem::path path = tuning::cache_path(options->family, ranks.count);
  if (!ranks.started) {
    make_folder_of(path);
    { const format::AtomicFile file(path); }  // throws for a bad path before any rank is started
    return bench::start_ranks("tune", arguments, ranks.count, memory_of_probe());
  }
  return be_rank(*options, path);
}

}  // namespace

}  // namespace reigen::apps::tune

namespace reigen::apps {

int tune_command(const Arguments& arguments) { return tune::run_tune(arguments); }

}  // namespace reigen::apps
