// The place in a graph where backward comes to the end of a call.
//
// A hook on an output is no such place: an output may be an input that was handed through, the output of several calls,
// or a leaf, whose gradient is complete whenever its last user's is. A node of the call's own is: autograd evaluates
// what was made last first, so it runs behind all that was made behind the call, and before all that was made within.
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
  std::weak_ptr<torch::autograd::Node> node;  // in the graph; none where no gradient is wanted
};

// The same values with one more node behind them, which all their gradients pass. It calls `comes` first. Where no
// gradient is wanted: as it is. What others hold too (an input or a leaf that was handed through, a view of one, one
// tensor twice) may not be written to from then on: LibTorch refuses it, as for outputs of custom functions.
CallEnd with_end(const nn::Carry& input, nn::Carry output, std::function<void()> comes);

}  // namespace reigen::parallel
