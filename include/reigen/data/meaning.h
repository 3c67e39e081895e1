// What the numbers of a dataset stand for, if neither shapes nor types tell: which byte token 7 is, which class
// target 3 is, from which files the samples come. A run stores the meaning in its checkpoints and in the model's
// file. It cannot be resumed with data of another meaning, unless data.may_differ is set.
// Thread rule: values, freely copied between threads.
#pragma once

#include <string>
#include <vector>

namespace reigen::data {

struct Fact {
  std::string name;  // one word: "alphabet", "classes", "text"
  // values[i] is what number i of the model's inputs or targets stands for. Or there is one value for all samples.
  // The values may have any bytes.
  std::vector<std::string> values;
  std::string one = {};  // kind of values[i]: "class", "token"; empty: there is only one value
  // If true, a change of the values is only reported, and the run goes on: computed numbers differ in their last bits
  // between machines.
  bool is_told_only = false;

  bool operator==(const Fact&) const = default;
};

using Meaning = std::vector<Fact>;

}  // namespace reigen::data
