// The subcommands of `reigen checkpoint`. Each gets the arguments after its name and returns the exit code.
#pragma once

#include "reigen_commands.h"

namespace reigen::apps::checkpoint {

int inspect(const Arguments& arguments);
int verify(const Arguments& arguments);
int diff(const Arguments& arguments);
int consolidate(const Arguments& arguments);
int reshard(const Arguments& arguments);
int import(const Arguments& arguments);

}  // namespace reigen::apps::checkpoint
