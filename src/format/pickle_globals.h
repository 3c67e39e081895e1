// The names that a pickle may use, and what each is good for. Nothing behind a name is ever called: a name that is not
// here ends the reading. Thread rule: constants.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "reigen/format/safetensors.h"

namespace reigen::format {

enum class PickleRole : std::uint8_t {
  kDict,
  kDefaultDict,
  kSet,
  kSize,
  kDevice,
  kBytes,
  kType,  // what a defaultdict may be made with
  kTensorClass,
  kRebuildTensor,
  kRebuildTyped,  // the same, and the element type is an argument
  kRebuildParameter,
  kRebuildSubclass,
  kStorageClass,
  kElementType
};

struct PickleGlobal {
  std::string_view module;
  std::string_view name;
  PickleRole role = PickleRole::kType;
  std::optional<TensorType> type = {};  // of storages and element types; none: format/ does not have it
};

std::optional<std::uint32_t> find_pickle_global(std::string_view module, std::string_view name);  // its number
const PickleGlobal& pickle_global(std::uint32_t number);

}  // namespace reigen::format
