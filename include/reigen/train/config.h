// Gives the configuration of a training (config/config.h) names in namespace train, for a task or a program of your
// own.
#pragma once

#include <string>
#include <vector>

#include "reigen/config/command_line.h"
#include "reigen/config/config.h"

namespace reigen::train {

using config::CheckpointConfig;
using config::CommandLine;
using config::CommConfig;
using config::Config;
using config::DataConfig;
using config::Environment;
using config::ModelConfig;
using config::ModelOption;
using config::OptimConfig;
using config::ParallelConfig;
using config::RunConfig;
using config::TrainConfig;

// Calls config::read_command_line() and also checks the options run.stop_signals and run.stop_after. Throws
// InvalidArgument if the value of one of these two cannot be parsed. Also throws the errors of read_command_line().
CommandLine read_options(const Config& defaults, const std::vector<std::string>& arguments,
                         const Environment& environment);

}  // namespace reigen::train
