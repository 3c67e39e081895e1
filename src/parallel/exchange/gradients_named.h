// Adds to a communication error the names of the gradients that the call sent.
#pragma once

#include <functional>
#include <string>

namespace reigen::parallel {

// Runs `body`. If it throws a communication error, one line is added to the error: the tag, and the names of the first
// and last parameter.
void with_gradients_named(const std::string& tag, const std::string& first, const std::string& last,
                          const std::function<void()>& body);

}  // namespace reigen::parallel
