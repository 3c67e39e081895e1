// What the numbers of a dataset stand for, where neither shapes nor types tell: which byte token 7 is, which class
// target 3 is, of which files the samples are. A run keeps it in its checkpoints and in the model's file, and does not
// go on with data that mean something else.
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

namespace reigen::data {

struct Fact {
  std::string name;  // "alphabet", "classes", "text": a word
  // Number i of the model's inputs or targets stands for values[i]; or one value, that of all samples. Any bytes.
  std::vector<std::string> values;
  std::string one = {};  // what values[i] is: "class", "token". Empty: there is one value
  // Another value is told, and the run goes on: numbers that are computed differ in their last bits between machines.
  bool is_told_only = false;

  bool operator==(const Fact&) const = default;
};

using Meaning = std::vector<Fact>;

}  // namespace reigen::data
