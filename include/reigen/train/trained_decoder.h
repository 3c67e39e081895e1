// A decoder with its weights and its tokens, read from what a training left: the directory of a run of the recipes gpt
// and llama, or a folder of Hugging Face.
// Thread rule: one thread at a time may use a TrainedDecoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "reigen/data/encoding.h"
#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"
#include "reigen/models/token_sampler.h"

namespace reigen::train {

class TrainedDecoder {
 public:
  // Reads the decoder to the CPU, in fp32, or in fp64 if its weights are fp64. A folder with config.json is one of
  // Hugging Face (models/hugging_face.h), and needs a tokenizer.json. A run's directory has config.toml; the weights
  // are those of model.safetensors, else of the newest whole checkpoint. Throws IoError with exit code 66 if there is
  // no such folder or a file is missing, and DataError for a file that is damaged or does not fit the others.
  explicit TrainedDecoder(const std::filesystem::path& folder);

  const data::Encoding& encoding() const { return *encoding_; }
  std::int64_t context() const;
  std::variant<std::unique_ptr<models::Gpt>, std::unique_ptr<models::Llama>>& model() { return model_; }

  // Continues `prompt` by at most `count` tokens, and calls `on_token` with the bytes of each. Ends early at a token
  // that ends texts. The prompt begins with the token that begins texts, if there is one. The model sees at most
  // context() tokens: when these are full, it goes on with the newest half of them. Throws DataError for a character
  // without a token. Throws InvalidArgument for a prompt without a token and for options out of range.
  void generate(std::string_view prompt, std::int64_t count, const models::SamplingOptions& options,
                const std::function<void(std::string_view bytes)>& on_token);

 private:
  void read_run(const std::filesystem::path& folder);
  void read_hugging_face(const std::filesystem::path& folder);

  std::variant<std::unique_ptr<models::Gpt>, std::unique_ptr<models::Llama>> model_;
  std::optional<data::Encoding> encoding_;
  std::optional<std::int64_t> bos_;
  std::vector<std::int64_t> eos_;
};

}  // namespace reigen::train
