// Finds and starts reigen-train, the program that links LibTorch.
#pragma once

#include <string>
#include <vector>

namespace reigen::apps {

// The program beside this one. Throws BackendError with exit code 69 if this build is without LibTorch.
std::string path_of_train_program();

// Replaces this process by the command. Throws IoError if the command cannot be run.
[[noreturn]] void become(std::vector<std::string>& command);

}  // namespace reigen::apps
