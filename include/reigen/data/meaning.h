// What the numbers in a dataset's samples mean, for example which byte token 7 stands for, or which class target 3 is.
// Types and shapes do not show this meaning. A dataset can also give facts by which a change of the data is recognised,
// such as a hash of its content. A run stores these facts in its checkpoints and in the model's file. The run cannot be
// resumed with data that have other facts, unless data.may_differ is set.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <string>
#include <vector>

namespace reigen::data {

struct Fact {
  std::string name;  // one word for the fact: "alphabet", "classes", "text"
  // values[i] is the meaning of number i in the model's inputs or targets. If `one` is empty, there is a single value
  // instead, which describes all samples, such as a hash of a text. The values may contain any bytes.
  std::vector<std::string> values;
  std::string one = {};  // what a number stands for: "class", "token"; empty if `values` has one value for all samples
  // If true, a difference in `values` is only reported, and the run continues. Use it for computed numbers, whose last
  // bits differ between machines.
  bool is_told_only = false;

  bool operator==(const Fact&) const = default;
};

using Meaning = std::vector<Fact>;

}  // namespace reigen::data
