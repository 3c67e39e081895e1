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
  std::optional<int> ranks = {};  // the number N of the flag -n N; not set if there is no such flag
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The environment variables of this process.
Environment process_environment();

// Reads flags from `arguments` (without program and recipe name), then values from `environment`, then from the file of
// --config, then from `defaults`; the first source that has a value decides. The learning rate and the weight decay of
// `defaults` apply only to the optimizer of `defaults`; another optimizer has its own defaults. Throws InvalidArgument
// with exit code 2 for unknown flags and for flags without a value. Throws InvalidArgument with exit code 78 for
// unknown keys in files and variables, for wrong types and for values out of range. Throws IoError with exit code 66
// for a missing file, and with 77 or 74 for a file that cannot be read (77: no permission). Throws DataError for a file
// that is no regular file or is larger than 1 MiB. The text names the flag, the variable or file:line:column.
CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment);

// The configuration as valid TOML, with one line for each key. Reading this text gives an equal Config.
std::string to_toml(const Config& config);

// The part of --help that lists the options.
std::string help_text(const Config& defaults);

// Equal configurations have equal hashes. Options that may differ between ranks do not count.
std::uint64_t hash_of(const Config& config);

// Collective. Throws InvalidArgument with exit code 78 on every rank if ranks were started with different
// configurations. The text names the first key that differs, with the values of rank 0 and of the first rank whose
// value differs. Cost if all ranks agree: one all_gather of 16 bytes.
void require_same(const Config& config, const Communicator& world);

}  // namespace reigen::config
