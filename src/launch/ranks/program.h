// Finds the file that a shell would run for a program's name.
#pragma once

#include <string>

namespace reigen::launch {

// A `name` with a slash is a path; for other names PATH is searched. Throws InvalidArgument when nothing is there (66),
// or when it is a directory or a file that may not be executed (77).
std::string find_program(const std::string& name);

}  // namespace reigen::launch
