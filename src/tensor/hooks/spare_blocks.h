// Memory in which backward makes the next gradient of a given size, so that the gradient need not be copied to the
// memory that other ranks read.
//
// LibTorch requests the memory of every CPU tensor from its allocator. In a backward on a thread that lends blocks, a
// request for exactly as many bytes as a block has is answered with that block. If the tensor that is made in the block
// becomes a parameter's gradient, the block becomes the place of this gradient, and the parameter's old place becomes a
// spare block. If another tensor is made in the block, the parameter's gradient is copied to its place as usual, and
// the block is free again when the other tensor dies.
//
// Thread rule: one thread at a time; tensors that lie in a block may die on any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace reigen::tensor {

class SpareBlocks {
 public:
  // The blocks are one-dimensional and of different sizes.
  explicit SpareBlocks(std::vector<at::Tensor> blocks);

  // Whether `gradient` was made in a block and is the only tensor that lies there.
  bool hold(const at::Tensor& gradient) const;
  // Returns the block that holds `gradient`, in the shape of `place`. From now on `place` is a spare block instead.
  at::Tensor exchange(const at::Tensor& gradient, const at::Tensor& place);

  // Lends the block that has exactly `bytes` bytes. Returns a null pointer if there is no such block or it is lent
  // already.
  c10::DataPtr lend(std::size_t bytes);

 private:
  // Returns the index of the block that holds `gradient`, or the number of blocks if none does.
  std::size_t find(const at::Tensor& gradient) const;

  std::vector<at::Tensor> blocks_;
};

// Lets hold() be true in the post-accumulate hook of the parameter. LibTorch 2.6 still has tensors of its own in the
// gradient's memory there, and only a hook that sees the gradient come can count them. Such a hook is registered and
// its number returned. 2.11 has no such tensors; then this does nothing.
std::optional<unsigned> note_arrivals(const at::Tensor& parameter);

// From lend_to_backward() to stop_lending(), backwards on this thread may use these blocks. Several SpareBlocks may be
// lent at a time.
void lend_to_backward(const std::shared_ptr<SpareBlocks>& blocks);
void stop_lending(const std::shared_ptr<SpareBlocks>& blocks);

}  // namespace reigen::tensor
