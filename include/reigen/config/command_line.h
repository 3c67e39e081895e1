// A configuration as text: flags, variables and a file in, TOML and --help out, and the comparison between ranks.
//
// Later wins: default < file (`--config f`) < environment < flags. Values are checked when they are read, so that the
// message can say where they come from. Unknown keys are refused with the nearest known one.
// Thread rule: the functions keep no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/config/config.h"

namespace reigen::config {

// What a command line asked for.
struct CommandLine {
  Config config;
  bool help = false;
  bool print_config = false;
  std::optional<int> ranks = {};  // -n N
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The process's own variables.
Environment process_environment();

// Reads `arguments` (without program and recipe name) over `environment` over the file of --config over `defaults`, of
// which learning rate and decay are for the default's optimizer alone: another one has its own.
// Errors: InvalidArgument 2 for unknown flags and flags without value, 78 for unknown keys in files and variables,
// wrong types and values out of range, IoError 66 for a missing file. The text names flag, variable or
// file:line:column.
CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment);

// Valid TOML with one line a key; reading it gives an equal Config.
std::string to_toml(const Config& config);

// The options part of --help.
std::string help_text(const Config& defaults);

// Equal exactly for equal configurations.
std::uint64_t hash_of(const Config& config);

// Throws InvalidArgument (78) on every rank when ranks were started with different configurations; the text names the
// first differing key with the values of rank 0 and of the first rank that differs. One all_gather of 8 bytes when they
// agree.
void require_same(const Config& config, const Communicator& world);

}  // namespace reigen::config
