// The commands of `reigen`. Each gets the arguments after its name and returns the exit code; errors are thrown.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::apps {

using Arguments = std::vector<std::string>;

int run_command(const Arguments& arguments);
int train_command(const Arguments& arguments);
int generate_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int tune_command(const Arguments& arguments);
int devices_command(const Arguments& arguments);
int flight_command(const Arguments& arguments);
int checkpoint_command(const Arguments& arguments);
int data_command(const Arguments& arguments);
int help_command(const Arguments& arguments);
int version_command();
std::string overview();  // `reigen --help`

using base::nearest;

// Throws InvalidArgument with exit code 2 for the first word that looks like a flag but is no flag of `reigen COMMAND`.
void refuse_unknown_flag(const Arguments& arguments, const std::vector<std::string>& known, const std::string& command);

// Reads N of `-n N`, 1 or more; "cpu" and "auto" mean the number of cores. Throws InvalidArgument: with exit code 2
// when N is not a number, with `out_of_range` when N is out of range.
int parse_ranks(const std::string& text, ExitCode out_of_range = ExitCode::kConfiguration);

}  // namespace reigen::apps
