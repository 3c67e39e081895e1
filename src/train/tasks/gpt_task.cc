#include "reigen/train/gpt_task.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "reigen/base/error.h"
#include "reigen/nn/cross_entropy.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

namespace {

constexpr std::int64_t kSampleBytes = 160;

// Replaces control characters, because a terminal must not execute commands in text that a model generates.
std::string printable(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 0x20 && byte < 0x7f) || c == '\n';
    result += plain ? c : '?';
  }
  return result;
}

}  // namespace

GptTask::GptTask(const GptTaskOptions& options) : options_(options) {}

const std::string& GptTask::name() const {
  static const std::string kName = "gpt";
  return kName;
}

const std::shared_ptr<const data::Corpus>& GptTask::corpus() {
  if (!corpus_) {
    corpus_ = std::make_shared<const data::Corpus>(options_.path.empty() ? data::own_documents()
                                                                         : data::read_corpus(options_.path));
  }
  return corpus_;
}

models::Gpt& GptTask::module() {
  if (model_) return *model_;
  models::GptOptions sizes = options_.model;
  const auto needed = static_cast<std::int64_t>(corpus()->vocabulary().size());
  if (sizes.vocab == 0) sizes.vocab = needed;
  if (sizes.vocab < needed) {
    throw InvalidArgument(Report{.what = "model.vocab is less than the text needs",
                                 .got = std::to_string(sizes.vocab),
                                 .expected = fmt::format("at least {}, the different bytes of the text", needed),
                                 .fix = "leave it out"});
  }
  model_ = make_model<models::Gpt>(options_.without_memory, options_.type, sizes);
  return *model_;
}

data::DatasetPtr GptTask::training_data() {
  if (!training_) training_ = data::text_windows(corpus(), {.context = options_.model.context});
  return training_;
}

data::DatasetPtr GptTask::test_data() {
  if (!test_) test_ = data::text_windows(corpus(), {options_.model.context, data::Split::kTest});
  return test_;
}

std::string GptTask::kind_of_samples() const {
  if (options_.path.empty())
    return fmt::format("windows of {} characters from Reigen's documents", options_.model.context);
  const bool folder = corpus_ && corpus_->taken().files > 0;
  return fmt::format("windows of {} characters from {}{}", options_.model.context, options_.path,
                     folder ? fmt::format(" ({})", corpus_->taken().text()) : "");
}

at::Tensor GptTask::loss(const at::Tensor& input, const at::Tensor& target) {
  const at::Tensor scores = module().forward(input).flatten(0, 1);
  if (nn::are_fused(options_.model.kernels, scores.device())) {
    return nn::cross_entropy(scores, target.flatten(), {.ignore_index = data::kIgnoredToken});
  }
  return at::cross_entropy_loss(scores, target.flatten(), {}, at::Reduction::Mean, data::kIgnoredToken);
}

Scores GptTask::score(const at::Tensor& input, const at::Tensor& target) {
  return score_classes(module().forward(input).flatten(0, 1), target.flatten());
}

std::string GptTask::describe(const Scores& scores) const {
  return fmt::format("validation loss {:.4f}, perplexity {:.3f} ({} characters)", scores.loss(),
                     std::exp(scores.loss()), scores.count);
}

std::vector<std::pair<std::string, double>> GptTask::more_figures(const Scores& scores) const {
  return {{"test_perplexity", std::exp(scores.loss())}};
}

std::string GptTask::closing_words() {
  std::string text = printable(sample("\n", kSampleBytes));
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5) text.replace(at, 1, "\n    ");
  return "it goes on like this:\n    " + text;
}

std::string GptTask::sample(const std::string& begin, std::int64_t count) {
  models::Gpt& model = module();
  const std::string& vocabulary = corpus()->vocabulary();
  std::vector<std::int64_t> tokens;
  for (const char c : begin) {
    const auto token = vocabulary.find(c);
    tokens.push_back(token == std::string::npos ? 0 : static_cast<std::int64_t>(token));
  }
  if (tokens.empty()) tokens.push_back(0);
  const at::Device device = model.parameters().front().device();
  const std::size_t start = tokens.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t seen = std::min(tokens.size(), static_cast<std::size_t>(options_.model.context));
    const at::Tensor input =
        at::tensor(at::ArrayRef<std::int64_t>(tokens.data() + tokens.size() - seen, seen)).unsqueeze(0).to(device);
    const at::Tensor scores = model.forward(input).select(1, -1).flatten().narrow(
        0, 0, static_cast<std::int64_t>(vocabulary.size()));  // a model may have more tokens than the text
    const at::Tensor sums = at::softmax(scores.to(at::kDouble), 0).cumsum(0);
    const double at = base::unit_interval(base::philox(options_.seed, static_cast<std::uint64_t>(i))[0]);
    const auto below = sums.le(at).sum().item<std::int64_t>();
    tokens.push_back(std::min(below, static_cast<std::int64_t>(vocabulary.size()) - 1));
  }
  return corpus()->text(std::span(tokens).subspan(start));
}

}  // namespace reigen::train
