#include "reigen/train/task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reigen/base/error.h"
#include "reigen/nn/init.h"
#include "reigen/train/manual_task.h"

namespace reigen::train {

void Task::validation_step(const data::Samples& batch) {
  at::Tensor loss;
  {
    const LogTo nowhere(*this, nullptr);  // what training_step() logs is of training
    loss = training_step(batch);
  }
  log("test_loss", loss);
}

std::vector<data::NamedTensor> Task::predict_step(const data::Samples&) {
  throw InvalidArgument(Report{.what = "the task has no predict_step()",
                               .fix = "override it: it returns the tensors that the model gives for a batch"});
}

at::Tensor ManualTask::training_step(const data::Samples&) {
  throw InvalidArgument(Report{.what = "a ManualTask has no training_step()",
                               .got = "the default of validation_step(), which calls it",
                               .fix = "override validation_step(), or leave the validation data out"});
}

void Task::initialize(std::uint64_t seed) { nn::initialize(module(), seed); }

std::string Task::describe(const Figures& figures) const {
  const auto samples = fmt::format("({} samples)", figures.terms);
  const auto loss = figures.find("test_loss");
  const auto accuracy = figures.find("test_accuracy");
  if (loss && accuracy && figures.values.size() == 2)
    return fmt::format("test accuracy {:.2f} %, loss {:.4f} {}", *accuracy * 100, *loss, samples);
  if (loss && figures.values.size() == 1) return fmt::format("test loss {:.6g} {}", *loss, samples);
  std::vector<std::string> words;
  for (const auto& [name, value] : figures.values) words.push_back(fmt::format("{} {:.6g}", name, value));
  return words.empty() ? "nothing was logged " + samples : fmt::format("{} {}", fmt::join(words, ", "), samples);
}

}  // namespace reigen::train
