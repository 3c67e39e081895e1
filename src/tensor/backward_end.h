// The end of a backward, also where a node of it runs a backward of its own (activation checkpointing): the engine
// calls back at the end of the inner one, when gradients of the outer one are still to come. Thread rule: what is asked
// for in a backward counts for the thread that runs it.
#pragma once

#include <functional>

namespace reigen::tensor {

// Calls `call` on this thread when the backward that is running has ended; of backwards that run within
// inner_backward(), when the outermost has. Not when it ends by an exception: `call` is destroyed then.
void at_backward_end(std::function<void()> call);

// Runs `backward`, from within a node of another backward.
void inner_backward(const std::function<void()>& backward);

}  // namespace reigen::tensor
