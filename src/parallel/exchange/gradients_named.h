// Communication that fails says whose gradients it carried.
#pragma once

#include <functional>
#include <string>

namespace reigen::parallel {

// Runs `body`; an error of communication gets a line more: the tag and the parameters from the first to the last.
void with_gradients_named(const std::string& tag, const std::string& first, const std::string& last,
                          const std::function<void()>& body);

}  // namespace reigen::parallel
