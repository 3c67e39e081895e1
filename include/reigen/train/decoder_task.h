// The text tasks: each byte is a token, or a tokenizer gives the tokens, and a decoder (models/gpt.h or models/llama.h)
// learns to predict the next token. The loss is the cross entropy over all targets except data::kIgnoredToken. The
// samples that the score counts are tokens, not texts.
//
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
#include "reigen/models/llama.h"
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"

namespace reigen::train {

// `Sizes` are the options of the model.
template <class Sizes>
struct DecoderTaskOptions {
  std::string path = {};       // file or folder for data::read_corpus; if empty, data::own_documents
  std::string tokenizer = {};  // file for format::Tokenizer::read; if empty, each byte is a token
  format::WordPattern pattern = format::WordPattern::kAuto;  // of a tiktoken file
  c10::ScalarType type = c10::kFloat;                        // type of the weights: kFloat or kDouble
  bool without_memory = false;  // if true, data_parallel() allocates the weights' memory (without_memory.h)
  std::uint64_t seed = 0;       // seed of the text that closing_words() generates
  // The options of the model. If vocab is 0, the model has as many tokens as the tokenizer, or one for each different
  // byte of the text. A larger vocab makes a model with unused tokens.
  Sizes model = {.vocab = 0};
};
using GptTaskOptions = DecoderTaskOptions<models::GptOptions>;
using LlamaTaskOptions = DecoderTaskOptions<models::LlamaOptions>;

template <class Model, class Sizes>
class DecoderTask final : public Task, public DataModule {
 public:
  explicit DecoderTask(const DecoderTaskOptions<Sizes>& options = {});

  Model& module() override;  // throws as training(), and InvalidArgument for wrong sizes
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  parallel::Plan tensor_plan() override;
  void divide(const parallel::TensorParallel& divided) override { divided_ = divided; }
  bool divide_sequences(const parallel::ContextParallel& context) override {
    context_ = context;
    return true;
  }
  nn::Carry first_input(const data::Samples& samples) override { return {own_tokens(samples.input)}; }
  data::DatasetPtr training() override;  // throws as data::read_corpus and format::Tokenizer::read
  data::DatasetPtr validation() override;
  std::string kind_of_samples() const override;
  double flops_of_sample() override;
  at::Tensor training_step(const data::Samples& batch) override;
  void validation_step(const data::Samples& batch) override;
  std::int64_t validation_batch() const override { return 16; }  // few, because each sample has many tokens
  std::string describe(const Figures& figures) const override;
  std::vector<std::pair<std::string, std::string>> files() override;  // the tokenizer
  std::string closing_words() override;

  // Continues `begin` by `count` tokens. Each is drawn from the probabilities that the model predicts.
  std::string sample(const std::string& begin, std::int64_t count);

 private:
  const std::shared_ptr<const data::Corpus>& corpus();
  // This rank's tokens of the sequences: all, unless ranks divide them.
  at::Tensor own_tokens(const at::Tensor& whole) const { return context_ ? context_.take(whole) : whole; }
  at::Tensor sum_of_losses(const at::Tensor& scores, const at::Tensor& target);
  bool is_divided() const { return divided_ && divided_.region().group.size() > 1; }

  DecoderTaskOptions<Sizes> options_;
  std::shared_ptr<const data::Corpus> corpus_;
  std::unique_ptr<Model> model_;
  parallel::TensorParallel divided_;
  parallel::ContextParallel context_;
  data::DatasetPtr training_;
  data::DatasetPtr validation_;
};

using GptTask = DecoderTask<models::Gpt, models::GptOptions>;
using LlamaTask = DecoderTask<models::Llama, models::LlamaOptions>;

}  // namespace reigen::train
