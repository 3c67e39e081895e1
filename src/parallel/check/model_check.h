// Checks whether all ranks hold the same model.
#pragma once

#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

// Returns one line for each parameter and each buffer: "parameter conv1.weight: Float [32, 1, 3, 3]".
std::vector<std::string> describe_model(const torch::nn::Module& module);

// Throws InvalidArgument on every rank if the lists differ. The error shows the first line that differs, and names the
// lowest rank that differs from rank 0. Cost: one small all_gather; the lines themselves are sent only if they differ.
// The error's text contains `who` (the function that reports it) and `what` (what went wrong).
void check_equal_on_all_ranks(const std::vector<std::string>& lines, const Communicator& world,
                              const char* who = "data_parallel", const char* what = "the model or its options differ");

}  // namespace reigen::parallel
