// Shared by the tests of config/: reads a command line, and tells how that fails.
#pragma once

#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/config/command_line.h"

namespace reigen::config {

inline CommandLine read(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  return read_command_line(Config{}, arguments, environment);
}

struct Failure {
  std::string text;
  ExitCode code;
};

inline Failure failure_of(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  try {
    read(arguments, environment);
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  }
  return {"no error", ExitCode::kOk};
}

}  // namespace reigen::config
