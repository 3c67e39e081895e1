// reigen devices: the GPUs that ranks can use here, and what is missing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "device/look.h"
#include "reigen/base/bytes.h"
#include "reigen_commands.h"

namespace reigen::apps {

namespace {

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

}  // namespace

int devices_command(const Arguments& arguments) {
  if (arguments == Arguments{"--help"} || arguments == Arguments{"-h"}) {
    fmt::print(
        "usage: reigen devices\n\n"
        "Prints the CUDA runtime, the driver, Reigen's kernels and the visible GPUs, and what is missing, with its\n"
        "cure. Ends with 69 if no rank could use a GPU. A rank takes the GPU with its number on the machine, modulo\n"
        "the number of visible GPUs; several ranks may share one.\n");
    return 0;
  }
  refuse_unknown_flag(arguments, {"--help"}, "devices");
  if (!arguments.empty()) {
    throw InvalidArgument(
        Report{.what = "reigen devices takes no argument", .got = arguments.front(), .fix = "leave it out"},
        ExitCode::kUsage);
  }
  const device::Found found = device::look();
  print_table({{"CUDA runtime", or_none(found.runtime)},
               {"driver", found.driver.empty() ? "none" : "runs CUDA up to " + found.driver},
               {"kernels", or_none(found.kernels)},
               {"MPS", found.has_mps ? "runs" : "does not run"}});
  if (!found.gpus.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"GPU", "name", "bus", "capability", "memory", "processors", "mode", "reaches"}};
    for (const device::Gpu& gpu : found.gpus) {
      rows.push_back({std::to_string(gpu.index), gpu.name, gpu.bus, gpu.capability, format_bytes(gpu.bytes),
                      std::to_string(gpu.processors), gpu.mode,
                      gpu.reaches.empty() ? "no other" : fmt::format("{}", fmt::join(gpu.reaches, ", "))});
    }
    fmt::print("\n");
    print_table(rows);
  }
  for (const std::string& missing : found.missing) fmt::print("\nmissing: {}\n", missing);
  return found.missing.empty() ? 0 : static_cast<int>(ExitCode::kUnavailable);
}

}  // namespace reigen::apps
