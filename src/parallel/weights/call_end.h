// Marks the end of a call by a node in the autograd graph. A call here is one forward of a unit. Backward runs this
// node when it comes to the end of the call.
//
// A hook on an output cannot mark the end. An output may be an input that was passed through, or the output of several
// calls. It may also be a leaf, whose gradient is complete only after the last operation that reads it has added its
// part. A node that is made for this purpose can mark the end, because autograd evaluates the newest nodes first. So
// the node runs after all nodes that were made after the call, and before all nodes that were made within the call.
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
  std::weak_ptr<torch::autograd::Node> node;  // null if no gradient is wanted
};

// Returns the values of `output` with one more node, through which all their gradients pass. The node calls `comes`
// before it passes gradients on. If no gradient is wanted, the output is returned as it is. A returned tensor may also
// be held elsewhere: it may be an input or a leaf that was passed through, a view of one, or a tensor that is returned
// twice. LibTorch refuses writes to such a returned tensor, as it does for outputs of custom functions.
CallEnd with_end(const nn::Carry& input, nn::Carry output, std::function<void()> comes);

}  // namespace reigen::parallel
