// Text helpers for the code that reads a configuration and for the code that prints it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reigen/config/config.h"

namespace reigen::config {

std::string quote_toml(const std::string& text);

// Returns the row of the option with this name ("train.epochs"), or nullptr.
const Field* find(const std::vector<Field>& rows, const std::string& name);

// The environment variable of the field: "REIGEN_TRAIN_EPOCHS".
std::string variable_of(const Field& field);

// Throws InvalidArgument with exit code 78 if the name of a recipe's own option cannot be a flag, or if another option
// has this name.
void require_own_options(const ModelConfig& own);

}  // namespace reigen::config
