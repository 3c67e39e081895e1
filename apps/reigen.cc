// reigen: starts distributed jobs. It does not link LibTorch, so it starts in milliseconds.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen_commands.h"

namespace {

using reigen::apps::Arguments;

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) {
    fmt::print(stderr, "{}", reigen::apps::overview());
    return static_cast<int>(reigen::ExitCode::kUsage);
  }
  const std::string& command = arguments.front();
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (command == "run") return reigen::apps::run_command(rest);
  if (command == "train") return reigen::apps::train_command(rest);
  if (command == "generate") return reigen::apps::generate_command(rest);
  if (command == "bench") return reigen::apps::bench_command(rest);
  if (command == "tune") return reigen::apps::tune_command(rest);
  if (command == "devices") return reigen::apps::devices_command(rest);
  if (command == "flight") return reigen::apps::flight_command(rest);
  if (command == "checkpoint") return reigen::apps::checkpoint_command(rest);
  if (command == "data") return reigen::apps::data_command(rest);
  if (command == "help" || command == "--help" || command == "-h") return reigen::apps::help_command(rest);
  if (command == "version" || command == "--version") return reigen::apps::version_command();
  const std::string meant =
      reigen::apps::nearest(command, {"run", "train", "generate", "bench", "tune", "devices", "flight", "checkpoint",
                                      "data", "help", "version", "--help", "--version"});
  throw reigen::InvalidArgument(
      {.what = "unknown command",
       .got = command,
       .expected = "run, train, generate, bench, tune, devices, flight, checkpoint, data, help or version",
       .fix = meant.empty() ? "reigen --help lists the commands" : "did you mean `reigen " + meant + "`?"},
      reigen::ExitCode::kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(Arguments(argv + 1, argv + argc));
  } catch (const reigen::Error& error) {
    fmt::print(stderr, "reigen: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "reigen: {}\n  fix: this is a bug of Reigen, please report it\n", error.what());
    return static_cast<int>(reigen::ExitCode::kBug);
  }
}
