// Expands the short forms in which Slurm writes lists.
#pragma once

#include <string>
#include <vector>

namespace reigen::launch {

// "a[01-03,7],b1" -> a01 a02 a03 a7 b1. Leading zeros are kept; a name with several brackets gives every combination.
// Throws an InvalidArgument that names `variable` if `text` is no such list.
std::vector<std::string> expand_node_list(const std::string& variable, const std::string& text);

// "2(x3),1" -> 2 2 2 1: the number of tasks on each node of a step.
std::vector<int> expand_tasks_per_node(const std::string& variable, const std::string& text);

}  // namespace reigen::launch
