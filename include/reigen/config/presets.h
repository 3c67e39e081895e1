// A preset: a name for a set of option values, for example those of a paper. Flags, variables, a file and the options
// of a program win over it:
//
//   config.run.presets = {{.name = "paper", .meaning = "the values of the paper",
//                          .values = {{"optim.lr", "0.1", "section 5"}, {"optim.name", "sgd", "section 5"}}}};
//
// Then the program has the option run.preset, and --help shows each value with its source.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace reigen::config {

struct PresetValue {
  std::string option;       // "optim.lr"
  std::string value;        // as the flag's
  std::string source = {};  // where the value is from: a paper and its section
  // The value is for global batches of at least `from_batch` and less than `below_batch` samples. Such a preset must
  // also have a value of train.global_batch, which counts if the user gives none.
  std::int64_t from_batch = 0;
  std::int64_t below_batch = std::numeric_limits<std::int64_t>::max();
  // The value is left out if the user gives another value to one of these options. For example, a learning rate for one
  // optimizer means nothing to another. An option that only some values of another option allow needs no such list.
  std::vector<std::string> unless = {};
};

struct Preset {
  std::string name;
  std::string meaning = {};  // one line for --help
  std::vector<PresetValue> values = {};
};

// The values for this global batch. If it is not set, that of the preset's own train.global_batch.
std::vector<PresetValue> values_of(const Preset& preset, std::optional<std::int64_t> global_batch);

}  // namespace reigen::config
