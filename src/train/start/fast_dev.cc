#include "train/start/fast_dev.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <system_error>

namespace reigen::train {

FastDev::~FastDev() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void FastDev::begin(Run& run) {
  const std::int64_t batches = run.config.run.fast_dev;
  const std::string name =
      fmt::format("reigen_fast_dev_{}_{}", ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count());
  folder_ = std::filesystem::temp_directory_path() / name;
  run.config.run.dir = folder_.string();
  run.config.train.max_steps = batches;
  run.config.train.epochs = std::max<std::int64_t>(run.config.train.epochs, batches);
  run.config.validate.limit = batches * run.task.validation_batch() * run.data.size();
  run.config.log = {.tensorboard = false};
  run.config.checkpoint = {};
  run.config.stop = {};
}

}  // namespace reigen::train
