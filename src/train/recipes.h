// What reigen-train can train by name.
// Thread rule: constants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct Recipe {
  std::string name;
  std::string summary;  // one line of --help
  std::string data;     // what data.path takes, and what is taken without it: lines of the recipe's --help
  Config defaults;
  std::int64_t batch_per_rank = 64;  // when train.global_batch is not set
  // without_memory: of the model's weights, until data_parallel() gives it.
  std::function<std::unique_ptr<Task>(const Config& config, bool without_memory)> make;
};

const std::vector<Recipe>& recipes();

}  // namespace reigen::train
