// Finds the file that a shell would run for a program's name.
#pragma once

#include <string>

namespace reigen::launch {

// A `name` with a slash is a path; for other names PATH is searched. Throws InvalidArgument: with exit code 66 if there
// is no such file, with exit code 77 if it is a directory or a file that may not be executed.
std::string find_program(const std::string& name);

}  // namespace reigen::launch
