// A configuration as text: reads flags, variables and a file, writes TOML and --help, and compares the configurations
// of all ranks.
//
// Later sources win: default < file (`--config f`) < environment < flags. Values are checked when they are read, so
// the message can name their source. An unknown key is an error that suggests the nearest known key.
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

// The result of reading a command line.
struct CommandLine {
  Config config;
  bool help = false;
  bool print_config = false;
  std::optional<int> ranks = {};  // the N of -n N
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The environment variables of this process.
Environment process_environment();

// Reads flags from `arguments` (without program and recipe name), then values from `environment`, then from the file of
// --config, then from `defaults`; the first source that has a value decides. Learning rate and weight decay of
// `defaults` apply only to the optimizer of `defaults`; another optimizer has its own. Errors: InvalidArgument with
// exit code 2 for unknown flags and flags without a value, and with 78 for unknown keys in files and variables, wrong
// types and values out of range; IoError 66 for a missing file (77, 74 if it cannot be read); DataError 65 for a file
// that is no regular file or larger than 1 MiB. The text names the flag, the variable or file:line:column.
CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment);

// Valid TOML with one line for each key. Reading it gives an equal Config.
std::string to_toml(const Config& config);

// The part of --help that lists the options.
std::string help_text(const Config& defaults);

// Equal configurations have equal hashes. Options that may differ between ranks do not count.
std::uint64_t hash_of(const Config& config);

// Collective. Throws InvalidArgument (78) on every rank if ranks were started with different configurations. The text
// names the first key that differs, with the values of rank 0 and of the first rank whose value differs. Cost if all
// ranks agree: one all_gather of 16 bytes.
void require_same(const Config& config, const Communicator& world);

}  // namespace reigen::config
