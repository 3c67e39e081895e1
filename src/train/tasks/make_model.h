// Makes a recipe's model with weights of a given type. If without_memory is true, data_parallel() gives the weights
// their memory later.
// Thread rule: no shared state.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <utility>

#include "reigen/nn/without_memory.h"

namespace reigen::train {

template <class Model, class... Arguments>
std::unique_ptr<Model> make_model(bool without_memory, c10::ScalarType type, Arguments&&... arguments) {
  std::optional<nn::WithoutMemory> without;
  if (without_memory) without.emplace();
  auto model = std::make_unique<Model>(std::forward<Arguments>(arguments)...);
  model->to(type);
  return model;
}

}  // namespace reigen::train
