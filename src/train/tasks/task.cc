#include "reigen/train/task.h"

#include <fmt/format.h>

#include "reigen/base/error.h"
#include "reigen/nn/init.h"

namespace reigen::train {

namespace {

[[noreturn]] void refuse_to_guess(const Task& task, const char* what) {
  throw InvalidArgument(Report{.what = fmt::format("the task '{}' has no {}", task.name(), what),
                               .fix = fmt::format("override {0}(input, target), or {0}_of(samples)", what)});
}

}  // namespace

at::Tensor Task::loss(const at::Tensor&, const at::Tensor&) { refuse_to_guess(*this, "loss"); }

Scores Task::score(const at::Tensor&, const at::Tensor&) { refuse_to_guess(*this, "score"); }

void Task::initialize(std::uint64_t seed) { nn::initialize(module(), seed); }

std::string Task::describe(const Scores& scores) const {
  const auto accuracy = scores.accuracy();
  if (!accuracy) return fmt::format("test loss {:.6g} ({} samples)", scores.loss(), scores.count);
  return fmt::format("test accuracy {:.2f} %, loss {:.4f} ({} samples)", *accuracy * 100, scores.loss(), scores.count);
}

std::vector<std::pair<std::string, double>> Task::more_figures(const Scores&) const { return {}; }

}  // namespace reigen::train
