#include "tune/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "reigen/base/error.h"
#include "usage.h"

namespace reigen::apps::tune {

namespace {

const std::vector<std::string> kFlags = {"-n", "--backend", "--seconds", "--explain", "--help", "-h"};

comm::Family parse_family(const std::string& word) {
  const std::vector<std::string> names = {"shared_memory", "tcp"};
  for (const auto family : {comm::Family::kSharedMemory, comm::Family::kTcp}) {
    if (word == comm::name_of(family)) return family;
  }
  const std::string meant = nearest(word, names);
  throw InvalidArgument({.what = "no backend with a choice of algorithms",
                         .got = "--backend " + word,
                         .expected = fmt::format("{}", fmt::join(names, ", ")),
                         .fix = meant.empty() ? "take one of them" : "did you mean " + meant + "?"},
                        ExitCode::kUsage);
}

}  // namespace

std::optional<TuneOptions> parse_tune_options(const Arguments& arguments) {
  refuse_unknown_flag(arguments, kFlags, "tune");
  TuneOptions options;
  std::string ranks;
  std::string backend = comm::name_of(options.family);
  CLI::App app(
      "Times every algorithm of every operation between processes, prints which is taken from which size on, and "
      "keeps\n"
      "that for groups with the algorithms \"tuned\".",
      "reigen tune");
  app.add_option("-n", ranks, "processes to start (default 2); cpu: one a core")->type_name("N");
  app.add_option("--backend", backend, "shared_memory, tcp (default shared_memory)")->type_name("B");
  app.add_option("--seconds", options.seconds, "of probing, about (default 1)")->type_name("S");
  app.add_flag("--explain", options.explain, "measure nothing: print what is in force and where it comes from");
  Arguments reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes words from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw usage_error(error, "reigen tune -n 2; `reigen tune --help` lists the options");
  }
  options.family = parse_family(backend);
  if (!ranks.empty()) options.ranks = parse_ranks(ranks, ExitCode::kUsage);
  if (!(options.seconds >= 0.01 && options.seconds <= 3600)) {
    throw InvalidArgument({.what = "--seconds is out of range",
                           .got = fmt::format("--seconds {}", options.seconds),
                           .expected = "0.01 to 3600",
                           .fix = "--seconds 1"},
                          ExitCode::kUsage);
  }
  return options;
}

}  // namespace reigen::apps::tune
