// Calls a function at the end of a backward, also if a node of this backward runs a backward of its own (activation
// checkpointing). LibTorch's engine alone would call the function at the end of the inner backward, when gradients of
// the outer backward are still to come.
// Thread rule: a function that is passed during a backward is called on the thread that runs this backward.
#pragma once

#include <functional>

namespace reigen::tensor {

// Calls `call` on this thread when the running backward has ended; within inner_backward(), when the outermost backward
// has ended. If the backward ends by an exception, `call` is destroyed and not called.
void at_backward_end(std::function<void()> call);

// Runs `backward`. Call it from within a node of another backward. Functions that `backward` passes to
// at_backward_end() are called at the end of the outermost backward.
void inner_backward(const std::function<void()>& backward);

}  // namespace reigen::tensor
