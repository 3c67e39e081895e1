// The meaning of the numbers of a dataset, as far as shapes and types do not show it: the byte of token 7, the class of
// target 3, the files of the samples. A run stores the meaning in its checkpoints and in the model's file. The run
// cannot be resumed with data of another meaning, unless data.may_differ is set.
// Thread rule: values, freely copied between threads.
#pragma once

#include <string>
#include <vector>

namespace reigen::data {

struct Fact {
  std::string name;  // one word: "alphabet", "classes", "text"
  // values[i] is the meaning of number i in the model's inputs or targets. Or there is a single value, which describes
  // all samples. The values may have any bytes.
  std::vector<std::string> values;
  std::string one = {};  // kind of values[i]: "class", "token"; empty: there is only one value
  // If true, a change of the values is only reported, and the run continues. This is for computed numbers, whose last
  // bits differ between machines.
  bool is_told_only = false;

  bool operator==(const Fact&) const = default;
};

using Meaning = std::vector<Fact>;

}  // namespace reigen::data
