// Pieces of text that reading and printing a configuration share.
#pragma once

#include <string>

#include "reigen/train/config.h"

namespace reigen::train {

constexpr double kLargest = 9e15;  // integers below are exact in a double
constexpr double kHugeNumber = 1e300;

// The rows of the section parallel.
void add_parallel(ParallelConfig& parallel, std::vector<Field>& table);

// The rows of the section optim.
void add_optim(OptimConfig& optim, std::vector<Field>& table);

// Throws InvalidArgument (78) for names of a recipe's own options that cannot be flags or are taken.
void require_own_options(const ModelConfig& own);

std::string quote_toml(const std::string& text);

// "a whole number of at least 1", "fp32, fp64": what a field takes.
std::string expected_text(const Field& field);

// "REIGEN_TRAIN_EPOCHS": the variable that gives the field.
std::string variable_of(const Field& field);

// The known name nearest to `name`, or empty when none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

}  // namespace reigen::train
