// A node in the autograd graph at which backward comes to the end of a call. A call here is one forward of a unit.
//
// A hook on an output cannot mark this place: an output may be an input that was handed through, the output of several
// calls, or a leaf, whose gradient is complete only after the last operation that reads it has added its part. A node
// that belongs to the call can mark the place: autograd evaluates the newest nodes first, so this node runs after all
// nodes that were made after the call, and before all nodes that were made within it.
#pragma once

#include <functional>
#include <memory>

#include "reigen/nn/unit.h"

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace reigen::parallel {

struct CallEnd {
  nn::Carry output;
  std::weak_ptr<torch::autograd::Node> node;  // null where no gradient is wanted
};

// Returns the same values with one more node on top, through which all their gradients pass. The node calls `comes`
// before it passes gradients on. If no gradient is wanted, the output is returned as it is. From then on, a tensor that
// is also held elsewhere (an input or a leaf that was handed through, a view of one, a tensor that is returned twice)
// may not be written to: LibTorch refuses the write, as it does for outputs of custom functions.
CallEnd with_end(const nn::Carry& input, nn::Carry output, std::function<void()> comes);

}  // namespace reigen::parallel
