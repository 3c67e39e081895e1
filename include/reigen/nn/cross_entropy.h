// Cross entropy over many classes, for example over the vocabulary of a language model.
//
// The logits are the largest tensor of a language model. This function makes no copy of them in fp32, and writes their
// gradient over them in forward: it reads the logits once or twice and writes them once.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  // rows with this target do not count
  // If false, the values of `logits` are lost when a gradient will be needed: their memory gets the gradient. So
  // nothing may read or write `logits` after the call. LibTorch reports an error in backward (c10::Error) if another
  // operation needs the old values in its backward, or if something has written to `logits` after the call. Each loss
  // over the same tensor, or over parts of one tensor, is such a write: set keep_logits for all of them. The memory is
  // kept without this option if `logits` is a parameter or a view of one, has gaps, is one of several views from one
  // operation (chunk), or is an output of a checkpointed unit that is kept or that the unit did not compute.
  bool keep_logits = false;
};

// The mean over all rows of -log(softmax(logits)[target]), without the rows whose target is ignore_index. If all rows
// are ignored, the result is NaN and the gradient is 0, as in LibTorch. `logits` has the shape [N,C] and the type fp64,
// fp32, bf16 or fp16; `target` has the shape [N] and the type int64. The result is one number in fp32 (fp64 for fp64
// logits). Sums are made in a fixed order.
//
// On a GPU the host does not wait. If a target is neither a class nor ignore_index, the loss and the gradient of its
// row are NaN; on the CPU the function throws InvalidArgument. It also throws InvalidArgument for shapes, types and
// devices that do not fit. It can be differentiated once, and only one backward may run through one result,
// also with retain_graph: otherwise InvalidArgument.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, const CrossEntropyOptions& options = {});

}  // namespace reigen::nn
