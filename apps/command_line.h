// Reads the command line of a command with CLI11.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "reigen/base/error.h"
#include "reigen_commands.h"
#include "usage.h"

namespace reigen::apps {

// Returns false for --help, after printing the help. Throws InvalidArgument with exit code 2 for a wrong command line.
inline bool parse(CLI::App& app, const Arguments& arguments) {
  Arguments reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes words from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw usage_error(error, fmt::format("`{} --help` lists what it takes", app.get_name()));
  }
  return true;
}

}  // namespace reigen::apps
