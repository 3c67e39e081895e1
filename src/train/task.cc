#include "reigen/train/task.h"

#include <fmt/format.h>

#include "reigen/nn/init.h"

namespace reigen::train {

void Task::initialize(std::uint64_t seed) { nn::initialize(module(), seed); }

std::string Task::describe(const Scores& scores) const {
  return fmt::format("test accuracy {:.2f} %, loss {:.4f} ({} samples)", scores.accuracy() * 100, scores.loss(),
                     scores.count);
}

std::vector<std::pair<std::string, double>> Task::more_figures(const Scores&) const { return {}; }

}  // namespace reigen::train
