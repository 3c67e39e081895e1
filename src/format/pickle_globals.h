// The names of a pickle that are known, and what each is good for. Nothing behind a name is ever called: an object of a
// name that is not here is not read, and one that serves to run programs ends the reading. Thread rule: constants.
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
  kRebuildOther,  // a tensor whose values do not lie in a storage, row by row; `reason` says what it is
  kFirstArgument,
  kStorageClass,
  kElementType
};

struct PickleGlobal {
  std::string_view module;
  std::string_view name;
  PickleRole role = PickleRole::kType;
  std::optional<TensorType> type = {};  // of storages and element types; none: safetensors files have none
  const char* reason = "";
};

std::optional<std::uint32_t> find_pickle_global(std::string_view module, std::string_view name);  // its number
const PickleGlobal& pickle_global(std::uint32_t number);

// Is the name good for nothing in a file of weights but to run a program when Python loads it?
bool runs_programs(std::string_view module, std::string_view name);

}  // namespace reigen::format
