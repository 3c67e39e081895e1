// Where backward makes the next gradient of a size, so that no copy need bring it to where other ranks read it.
//
// LibTorch asks its allocator of CPU memory for every tensor. In a backward on a thread that lends blocks, a request
// for exactly as many bytes as a block has is answered with that block. If what is made there becomes a parameter's
// gradient, the block and the parameter's place change roles; if it was anything else, that gradient is copied to its
// place as it would have been, and the block is free again when the other tensor dies.
//
// Thread rule: one thread at a time; tensors that lie in a block may die on any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace reigen::tensor {

class SpareBlocks {
 public:
  // One-dimensional, of different sizes.
  explicit SpareBlocks(std::vector<at::Tensor> blocks);

  // Whether `gradient` was made in a block and is all that lies there.
  bool hold(const at::Tensor& gradient) const;
  // The block that holds `gradient`, which takes the shape of `place`; `place` is the block from now on.
  at::Tensor exchange(const at::Tensor& gradient, const at::Tensor& place);

  // The block of that many bytes, unless it is lent or there is none: then a null pointer.
  c10::DataPtr lend(std::size_t bytes);

 private:
  // Its number; that of none: their count.
  std::size_t find(const at::Tensor& gradient) const;

  std::vector<at::Tensor> blocks_;
};

// From now on backwards on this thread may use these blocks, until they may not. Several may be lent at a time.
void lend_to_backward(const std::shared_ptr<SpareBlocks>& blocks);
void stop_lending(const std::shared_ptr<SpareBlocks>& blocks);

}  // namespace reigen::tensor
