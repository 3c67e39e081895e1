// Text, a byte a token: the decoder of models/gpt.h learns to guess the next one. Cross entropy over the tokens that
// count; the score's samples are tokens. Thread rule: as Task.
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
  std::string path = {};               // as data::read_corpus; empty: data::own_documents
  c10::ScalarType type = c10::kFloat;  // or kDouble: of the weights
  bool without_memory = false;         // weights have none until data_parallel() gives it (nn/without_memory.h)
  std::uint64_t seed = 0;              // of the text that closing_words() makes up
  // As models::GptOptions; vocab 0: as many as the text has different bytes. More than those is a model of that size.
  models::GptOptions model = {.vocab = 0};
};

class GptTask final : public Task {
 public:
  explicit GptTask(const GptTaskOptions& options = {});

  const std::string& name() const override;
  models::Gpt& module() override;  // throws as training_data(), and InvalidArgument for sizes that do not fit
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  data::DatasetPtr training_data() override;  // throws as data::read_corpus
  data::DatasetPtr test_data() override;
  std::string kind_of_samples() const override;
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target) override;
  Scores score(const at::Tensor& input, const at::Tensor& target) override;
  std::int64_t score_batch() const override { return 16; }  // a window has as many scores as a batch of pictures
  std::string describe(const Scores& scores) const override;
  std::vector<std::pair<std::string, double>> more_figures(const Scores& scores) const override;
  std::string closing_words() override;

  // `count` bytes that the model goes on with after `begin`, each drawn from its scores.
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
