// What reading and printing a configuration share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reigen/config/config.h"

namespace reigen::config {

std::string quote_toml(const std::string& text);

// "REIGEN_TRAIN_EPOCHS": the variable that gives the field.
std::string variable_of(const Field& field);

// Throws InvalidArgument (78) for names of a recipe's own options that cannot be flags or are taken.
void require_own_options(const ModelConfig& own);

}  // namespace reigen::config
