// The global names (of Python classes and functions) that the pickle reader knows, and the role of each. The reader
// never calls the function that a name refers to. It does not read an object that an unknown name makes. It throws
// DataError for a name that serves to run programs. Thread rule: constants.
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
  kType,  // a type that a defaultdict may have for its default values
  kTensorClass,
  kRebuildTensor,
  kRebuildTyped,  // as kRebuildTensor, with the element type as an argument
  kRebuildParameter,
  kRebuildSubclass,
  kRebuildOther,  // a tensor whose values are not stored as rows of a storage; `reason` says what it is
  kFirstArgument,
  kStorageClass,
  kElementType
};

struct PickleGlobal {
  std::string_view module;
  std::string_view name;
  PickleRole role = PickleRole::kType;
  std::optional<TensorType> type = {};  // the type of the elements; nullopt if safetensors files have no such type
  const char* reason = "";
};

std::optional<std::uint32_t> find_pickle_global(std::string_view module, std::string_view name);  // the name's number
const PickleGlobal& pickle_global(std::uint32_t number);

// True if a name's only use in a file of weights is to run a program when Python loads the file.
bool runs_programs(std::string_view module, std::string_view name);

}  // namespace reigen::format
