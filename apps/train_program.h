// Finds and starts the programs beside this one: reigen-train, which links LibTorch, and reigen-data, which links the
// libraries of containers.
#pragma once

#include <string>
#include <vector>

namespace reigen::apps {

// The program beside this one. Throws BackendError with exit code 69 if this build is without LibTorch.
std::string path_of_train_program();

// The program beside this one. Throws BackendError with exit code 69 if it is not there.
std::string path_of_data_program();

// Replaces this process by the command. Throws IoError if the command cannot be run.
[[noreturn]] void become(std::vector<std::string>& command);

}  // namespace reigen::apps
