// Adds to an error of communication which gradients the call carried.
#pragma once

#include <functional>
#include <string>

namespace reigen::parallel {

// Runs `body`. An error of communication gets one more line: the tag, and the names of the first and last parameter.
void with_gradients_named(const std::string& tag, const std::string& first, const std::string& last,
                          const std::function<void()>& body);

}  // namespace reigen::parallel
