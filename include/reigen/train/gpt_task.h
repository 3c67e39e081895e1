// The text task: each byte is a token, and the decoder of models/gpt.h learns to predict the next token. The loss is
// the cross entropy over all targets except data::kIgnoredToken. The samples that the score counts are tokens, not
// texts.
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reigen/data/text.h"
#include "reigen/models/gpt.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct GptTaskOptions {
  std::string path = {};               // file or folder for data::read_corpus; if empty, data::own_documents
  c10::ScalarType type = c10::kFloat;  // type of the weights: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  std::uint64_t seed = 0;              // seed of the text that closing_words() generates
  // The options of the model. If vocab is 0, the model has one token for each different byte of the text. A larger
  // vocab makes a model with unused tokens.
  models::GptOptions model = {.vocab = 0};
};

class GptTask final : public Task {
 public:
  explicit GptTask(const GptTaskOptions& options = {});

  const std::string& name() const override;
  models::Gpt& module() override;  // throws as training_data(), and InvalidArgument for wrong sizes
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  data::DatasetPtr training_data() override;  // throws as data::read_corpus
  data::DatasetPtr test_data() override;
  std::string kind_of_samples() const override;
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target) override;
  Scores score(const at::Tensor& input, const at::Tensor& target) override;
  std::int64_t score_batch() const override { return 16; }  // few, because each sample has many tokens
  std::string describe(const Scores& scores) const override;
  std::vector<std::pair<std::string, double>> more_figures(const Scores& scores) const override;
  std::string closing_words() override;

  // Continues `begin` by `count` bytes. Each byte is drawn from the probabilities that the model predicts.
  std::string sample(const std::string& begin, std::int64_t count);

 private:
  const std::shared_ptr<const data::Corpus>& corpus();

  GptTaskOptions options_;
  std::shared_ptr<const data::Corpus> corpus_;
  std::unique_ptr<models::Gpt> model_;
  data::DatasetPtr training_;
  data::DatasetPtr test_;
};

}  // namespace reigen::train
