#include "reigen/train/trained_decoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/checkpoint/weights.h"
#include "reigen/config/command_line.h"
#include "reigen/models/hugging_face.h"
#include "reigen/models/key_value_cache.h"
#include "tensor/stored_type.h"
#include "train/start/meaning.h"
#include "train/tasks/recipes.h"

namespace reigen::train {

namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

DataError wrong(const fs::path& folder, const std::string& what, const std::string& got, const std::string& expected) {
  return DataError(Report{.what = fmt::format("'{}': {}", folder.string(), what),
                          .got = got,
                          .expected = expected,
                          .fix = "give the directory of a run of gpt or llama, with the files that the run wrote"});
}

Config config_of(const fs::path& folder, const std::string& recipe) {
  for (const Recipe& one : recipes()) {
    if (one.name != recipe) continue;
    return config::read_command_line(one.defaults, {"--config", (folder / "config.toml").string()}, {}).config;
  }
  throw InternalError("no recipe " + recipe);
}

const checkpoint::TensorInfo& require(const checkpoint::Weights& weights, const std::string& name) {
  const checkpoint::TensorInfo* found = weights.find(name);
  if (found == nullptr)
    throw wrong(weights.path(), "the weights lack a tensor", "no " + name, "all weights of the model");
  return *found;
}

// Fills the model one tensor at a time. A tied last layer is not in the file.
void load(const checkpoint::Weights& weights, torch::nn::Module& model, const std::string& tied) {
  for (const auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    if (name == tied) continue;
    const checkpoint::TensorInfo& found = require(weights, name);
    const at::Tensor parameter = item.value().detach();
    if (found.shape != parameter.sizes().vec()) {
      throw wrong(weights.path(), fmt::format("{} does not fit config.toml", name),
                  fmt::format("[{}]", fmt::join(found.shape, ", ")),
                  fmt::format("[{}]", fmt::join(parameter.sizes(), ", ")));
    }
    const at::Tensor stored = at::empty(found.shape, tensor::scalar_type_of(name, found.type));
    weights.read(name, {static_cast<std::byte*>(stored.data_ptr()), static_cast<std::size_t>(found.bytes())});
    parameter.copy_(stored);
  }
}

c10::ScalarType computed_in(format::TensorType stored) {
  return stored == format::TensorType::kF64 ? c10::kDouble : c10::kFloat;
}

// The tokens of a run: those of the tokenizer that it copied, or the bytes that its weights tell.
data::Encoding encoding_of_run(const fs::path& folder, const Config& config, const checkpoint::Weights& weights) {
  for (const char* name : {"tokenizer.json", "tokenizer.tiktoken"}) {
    if (!is_there(folder / name)) continue;
    const auto pattern = format::word_pattern_of(config.data.word_pattern);
    const data::Encoding encoding(
        std::make_shared<const format::Tokenizer>(format::Tokenizer::read(folder / name, {.pattern = pattern})));
    const auto told = weights.metadata().find("meaning.tokenizer");
    if (told != weights.metadata().end() && told->second != to_text({encoding.fact()}).at("meaning.tokenizer")) {
      throw wrong(folder, fmt::format("{} is not the tokenizer of the training", name),
                  to_text({encoding.fact()}).at("meaning.tokenizer"), told->second);
    }
    return encoding;
  }
  const auto alphabet = weights.metadata().find("meaning.alphabet");
  if (alphabet == weights.metadata().end()) {
    throw IoError(Report{.what = fmt::format("'{}' does not say what its tokens mean", folder.string()),
                         .got = "neither a tokenizer nor meaning.alphabet in the weights",
                         .expected = "one of both, as a run writes them",
                         .fix = "copy the run's tokenizer.json into it"},
                  ExitCode::kInputMissing);
  }
  std::string bytes;
  for (const std::string& one : values_of(alphabet->second)) bytes += one;
  return data::Encoding(bytes);
}

}  // namespace

TrainedDecoder::TrainedDecoder(const fs::path& folder) {
  std::error_code ignored;
  const bool is_run = is_there(folder / "config.toml");
  if (!fs::is_directory(folder, ignored) || (!is_run && !is_there(folder / "config.json"))) {
    throw IoError(Report{.what = fmt::format("'{}' holds no decoder", folder.string()),
                         .got = fs::is_directory(folder, ignored) ? "neither config.toml nor config.json"
                                : is_there(folder)                ? "a file"
                                                                  : "no such folder",
                         .expected = "the directory of a run of gpt or llama, or a folder of Hugging Face",
                         .fix = "check the path"},
                  ExitCode::kInputMissing);
  }
  if (is_run)
    read_run(folder);
  else
    read_hugging_face(folder);
  std::visit([](auto& model) { model->eval(); }, model_);
}

void TrainedDecoder::read_run(const fs::path& folder) {
  const fs::path file = folder / "model.safetensors";
  const checkpoint::Weights weights(is_there(file) ? file : folder);
  const checkpoint::TensorInfo* const of_llama = weights.find("model.embed_tokens.weight");
  const checkpoint::TensorInfo* const of_gpt = weights.find("embed.tok.weight");
  if (of_llama == nullptr && of_gpt == nullptr) {
    throw wrong(folder, "the run has no decoder", fmt::format("{} other tensors", weights.tensors().size()),
                "weights of the recipe gpt or llama");
  }
  const checkpoint::TensorInfo& embedding = of_llama != nullptr ? *of_llama : *of_gpt;
  Config config = config_of(folder, of_llama != nullptr ? "llama" : "gpt");
  for (config::ModelOption& option : config.model.options) {
    if (option.key == "vocab") option.value = embedding.shape.at(0);
  }
  encoding_.emplace(encoding_of_run(folder, config, weights));
  if (of_llama != nullptr) {
    auto model = std::make_unique<models::Llama>(llama_options(config));
    model->to(computed_in(embedding.type));
    load(weights, *model, model->options().tied ? "lm_head.weight" : "");
    model_ = std::move(model);
  } else {
    auto model = std::make_unique<models::Gpt>(gpt_options(config));
    model->to(computed_in(embedding.type));
    load(weights, *model, "");
    model_ = std::move(model);
  }
  if (encoding_->tokenizer() && encoding_->tokenizer()->eos()) eos_.push_back(*encoding_->tokenizer()->eos());
}

void TrainedDecoder::read_hugging_face(const fs::path& folder) {
  const models::HuggingFaceConfig config = models::read_hugging_face_config(folder);
  const auto tokenizer = std::make_shared<const format::Tokenizer>(format::Tokenizer::read(folder / "tokenizer.json"));
  encoding_.emplace(tokenizer);
  bos_ = tokenizer->bos();
  eos_ = config.eos;
  if (tokenizer->eos()) eos_.push_back(*tokenizer->eos());
  const auto type = config.type == c10::kDouble ? c10::kDouble : c10::kFloat;
  const auto read = [&]<class Model>(std::unique_ptr<Model> model) {
    if (tokenizer->size() > model->options().vocab) {
      throw DataError(Report{.what = fmt::format("'{}': the tokenizer does not fit the model", folder.string()),
                             .got = fmt::format("{} tokens", tokenizer->size()),
                             .expected = fmt::format("at most vocab_size, {}", model->options().vocab),
                             .fix = "use the tokenizer.json that belongs to this config.json"});
    }
    model->to(type);
    models::load_hugging_face(folder, *model);
    model_ = std::move(model);
  };
  if (const auto* llama = std::get_if<models::LlamaOptions>(&config.model))
    read(std::make_unique<models::Llama>(*llama));
  else
    read(std::make_unique<models::Gpt>(std::get<models::GptOptions>(config.model)));
}

std::int64_t TrainedDecoder::context() const {
  return std::visit([](const auto& model) { return model->options().context; }, model_);
}

void TrainedDecoder::generate(std::string_view prompt, std::int64_t count, const models::SamplingOptions& options,
                              const std::function<void(std::string_view)>& on_token) {
  const models::TokenSampler sampler(options);
  std::vector<std::int64_t> tokens;
  if (bos_) tokens.push_back(*bos_);
  const std::vector<std::int64_t> of_prompt = encoding_->encode(prompt);
  tokens.insert(tokens.end(), of_prompt.begin(), of_prompt.end());
  REIGEN_CHECK(!tokens.empty(),
               "nothing to continue\n  got: an empty prompt, and no token that begins texts\n  fix: "
               "give a prompt, e.g. --prompt 'Once'");
  const at::Tensor allowed = at::full({encoding_->size()}, -std::numeric_limits<double>::infinity(), at::kDouble);
  auto* const of_token = allowed.mutable_data_ptr<double>();
  for (std::int64_t token = 0; token < encoding_->size(); ++token) {
    if (encoding_->has(token)) of_token[token] = 0;
  }
  const at::NoGradGuard no_gradients;
  models::KeyValueCache cache;
  std::size_t seen = 0;  // tokens that are in the cache or have left it
  for (std::int64_t i = 0; i < count; ++i) {
    const auto room = static_cast<std::size_t>(context() - cache.positions());
    if (tokens.size() - seen > room) {
      cache.clear();
      const auto most = static_cast<std::size_t>(i == 0 ? context() : std::max<std::int64_t>(1, context() / 2));
      seen = tokens.size() - std::min(tokens.size(), most);
    }
    const auto next = static_cast<std::int64_t>(tokens.size() - seen);
    const at::Tensor input = at::tensor(at::ArrayRef<std::int64_t>(tokens.data() + seen, tokens.size() - seen));
    const at::Tensor scores = std::visit(
        [&](auto& model) {
          return model->forward(input.view({1, next}), cache).select(1, -1).flatten();
        },
        model_);
    seen = tokens.size();
    const std::int64_t token =
        sampler.draw(scores.narrow(0, 0, encoding_->size()).to(at::kDouble) + allowed, static_cast<std::uint64_t>(i));
    if (std::find(eos_.begin(), eos_.end(), token) != eos_.end()) return;
    tokens.push_back(token);
    on_token(encoding_->bytes(token));
  }
}

}  // namespace reigen::train
