// Turns CLI11's error about a wrong command line into an InvalidArgument.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "reigen/base/error.h"

namespace reigen::apps {

// The error has exit code 2. `fix`: what the user can do, for example where the options are listed.
inline InvalidArgument usage_error(const CLI::ParseError& error, const std::string& fix) {
  const std::string text = error.what();
  const std::string mark = "Could not convert: ";
  const std::size_t equals = text.find(" = ");
  if (dynamic_cast<const CLI::ConversionError*>(&error) == nullptr || !text.starts_with(mark) ||
      equals == std::string::npos) {
    return InvalidArgument(Report{.what = text, .fix = fix}, ExitCode::kUsage);
  }
  const std::string flag = text.substr(mark.size(), equals - mark.size());
  return InvalidArgument(Report{.what = flag + " is not a number",
                                .got = fmt::format("{} {}", flag, text.substr(equals + 3)),
                                .expected = "a number",
                                .fix = fix},
                         ExitCode::kUsage);
}

}  // namespace reigen::apps
