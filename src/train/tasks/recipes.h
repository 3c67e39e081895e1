// The built-in recipes of reigen-train.
// Thread rule: constants, readable from any thread.
#pragma once

#include <vector>

#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"
#include "reigen/train/program.h"

namespace reigen::train {

const std::vector<Recipe>& recipes();

// The options of the recipes' decoders. `vocab` is 0 unless model.vocab is set.
models::GptOptions gpt_options(const Config& config);
models::LlamaOptions llama_options(const Config& config);

}  // namespace reigen::train
