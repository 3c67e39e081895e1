// What the reader and writer of Hugging Face's folders share. Thread rule: no shared state.
#pragma once

#include <filesystem>

#include "reigen/models/hugging_face.h"

namespace reigen::models {

// Writes config.json. Throws IoError.
void write_config(const std::filesystem::path& folder, const LlamaOptions& options, c10::ScalarType type,
                  const HuggingFaceFiles& files);
void write_config(const std::filesystem::path& folder, const GptOptions& options, c10::ScalarType type,
                  const HuggingFaceFiles& files);

}  // namespace reigen::models
