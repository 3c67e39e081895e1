// Loads a folder of Hugging Face, computes scores and saves another folder, for scripts/compare/transformers:
//   hugging_face FOLDER TOKENS SCORES COPY
// TOKENS is a safetensors file with the tensor `tokens` [B,T]; SCORES gets the tensors `scores` [B,T,vocab] and
// `cached`, the scores of the same tokens given one at a time. The model has the type of the folder's weights.
#include <ATen/ATen.h>

#include <iostream>
#include <memory>
#include <variant>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/models/hugging_face.h"
#include "reigen/models/key_value_cache.h"
#include "reigen/tensor/tensor_files.h"

namespace {

template <class Model, class Options>
void compare(const Options& options, c10::ScalarType type, char** paths) {
  const at::NoGradGuard no_gradients;
  Model model(options);
  model.to(type);
  reigen::models::load_hugging_face(paths[0], model);
  model.eval();
  const at::Tensor tokens = reigen::tensor::read_tensors(paths[1]).at(0).tensor;
  std::vector<at::Tensor> parts;
  reigen::models::KeyValueCache cache;
  for (std::int64_t t = 0; t < tokens.size(1); ++t) parts.push_back(model.forward(tokens.narrow(1, t, 1), cache));
  reigen::tensor::write_tensors(paths[2], {{"scores", model.forward(tokens)}, {"cached", at::cat(parts, 1)}});
  reigen::models::save_hugging_face(paths[3], model);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "hugging_face FOLDER TOKENS SCORES COPY\n";
    return 2;
  }
  try {
    const auto config = reigen::models::read_hugging_face_config(arguments[1]);
    if (const auto* llama = std::get_if<reigen::models::LlamaOptions>(&config.model))
      compare<reigen::models::Llama>(*llama, config.type, arguments + 1);
    else
      compare<reigen::models::Gpt>(std::get<reigen::models::GptOptions>(config.model), config.type, arguments + 1);
  } catch (const reigen::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
