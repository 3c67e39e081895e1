// Command lines of `reigen checkpoint`, read by CLI11.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "reigen/base/error.h"
#include "reigen_commands.h"

namespace reigen::apps::checkpoint {

// False: --help, which is printed then. Throws InvalidArgument (2).
inline bool parse(CLI::App& app, const Arguments& arguments) {
  Arguments reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(
        Report{.what = error.what(), .fix = fmt::format("`{} --help` lists what it takes", app.get_name())},
        ExitCode::kUsage);
  }
  return true;
}

}  // namespace reigen::apps::checkpoint
