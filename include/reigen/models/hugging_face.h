// Folders of models as Hugging Face's transformers writes them: config.json, and the weights in model.safetensors or in
// several files with an index. Reads and writes models of the types "llama" and "gpt2".
//
//   const auto config = models::read_hugging_face_config("llama-folder");
//   models::Llama model(std::get<models::LlamaOptions>(config.model));
//   model.to(config.type);
//   models::load_hugging_face("llama-folder", model);
//
// Thread rule: the functions have no shared state.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <variant>
#include <vector>

#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"
#include "reigen/parallel/tensor_parallel.h"

namespace reigen::models {

struct HuggingFaceConfig {
  std::variant<LlamaOptions, GptOptions> model;
  c10::ScalarType type = c10::kFloat;    // the type of the stored weights: fp64, fp32, bf16 or fp16
  std::optional<std::int64_t> bos = {};  // the token before a text
  std::vector<std::int64_t> eos = {};    // the tokens that end a text; generation_config.json may list several
};

// Reads config.json (and generation_config.json, if it is there). Dropout is not read: it changes no result after
// training. Throws IoError with exit code 66 if there is no config.json. Throws DataError, naming the entry, for a
// damaged file, and for everything that the models here do not have: another model_type, rope scaling, another
// activation, biases of attention, sliding windows, quantised weights, an entry that is not known.
HuggingFaceConfig read_hugging_face_config(const std::filesystem::path& folder);

// Reads the folder's weights into the model, one tensor at a time. They are converted to the type of the model's
// weights. A tensor without memory (nn/without_memory.h) is left out. So the function can be
// DataParallelOptions::initialize of a model that was made without memory, and no rank then makes the whole model:
//
//   std::optional<reigen::nn::WithoutMemory> without(std::in_place);
//   models::Llama model(std::get<models::LlamaOptions>(config.model));
//   without.reset();
//   const auto divided = reigen::parallelize(model, mesh, models::tensor_plan(model.options()));
//   const auto parallel = reigen::data_parallel(
//       model, world, {.initialize = [&] { models::load_hugging_face("llama-folder", model); },
//                      .tensor_parallel = divided});
//   ...
//   models::save_hugging_face("new-folder", model, {.divided = divided});
//
// There only one parameter of the model is whole at a time.
//
// Throws as checkpoint::Weights does. Throws DataError, naming the tensor, if one is missing, unknown, or of another
// shape; the model may then have some of the weights, and a tensor that could not be read in part of one.
void load_hugging_face(const std::filesystem::path& folder, Llama& model);
void load_hugging_face(const std::filesystem::path& folder, Gpt& model);

struct HuggingFaceFiles {
  std::filesystem::path tokenizer = {};  // a tokenizer.json that is copied into the folder; empty: none
  std::optional<std::int64_t> bos = {};
  std::vector<std::int64_t> eos = {};
  // Which weights of the model are divided among ranks (parallelize()); empty: none.
  parallel::TensorParallel divided = {};
};

// Writes config.json and model.safetensors, which transformers loads; the folder is made if it is missing. The weights
// have the type of the model's weights: the bytes of a tensor that was loaded in its own type are those of the file.
// If the weights are divided, the call is collective over all ranks of the mesh, whose first rank writes the folder. It
// gathers one tensor at a time. If the first rank cannot write, its exception ends the group of all ranks.
// Throws IoError if a file cannot be written. Throws InvalidArgument, naming the tensor, if a weight has no memory on
// this rank: weights that come and go need data_parallel's gather_weights() first, and a model in stages cannot be
// saved.
void save_hugging_face(const std::filesystem::path& folder, const Llama& model, const HuggingFaceFiles& files = {});
void save_hugging_face(const std::filesystem::path& folder, const Gpt& model, const HuggingFaceFiles& files = {});

}  // namespace reigen::models
