// Finds the file that a shell would run for a name.
#pragma once

#include <string>

namespace reigen::launch {

// `name` with a slash is a path, else PATH is searched. Throws InvalidArgument: nothing there (66), a directory or a
// file that may not be executed (77).
std::string find_program(const std::string& name);

}  // namespace reigen::launch
