// Named tensors to and from checkpoints, which know nothing of LibTorch (reigen/checkpoint/).
//
//   const Pieces model(tensors_of(module));
//   checkpoint::save("run/checkpoints", {.step = 100}, {{"model", model.pieces()}}, 3, world);
//   ...
//   const auto found = checkpoint::find_newest("run/checkpoints");
//   read_into(*found.newest, "model", tensors_of(module));
//
// Thread rule: no shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::tensor {

// Tensors as a rank gives them: whole, or what it has of them. Borrows the memory of contiguous ones, which must not
// change until the checkpoint is written or copied; copies others. Throws InvalidArgument for an element type that
// files do not know, and for weights that ranks divide and have not gathered.
class Pieces {
 public:
  explicit Pieces(const std::vector<NamedTensor>& tensors);
  const std::vector<checkpoint::Piece>& pieces() const { return pieces_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<checkpoint::Piece> pieces_;
};

// tensors[i] = the tensor of that name in the group, or what this rank has of it, in place. Throws DataError naming the
// first tensor that is missing, unknown or of another shape or type, and InvalidArgument for weights that ranks divide
// (data_parallel's load() is for those); nothing is changed then.
void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors);

// All tensors of a group, whole, in the order of the manifest. Empty when there is no such group. What this rank has a
// part of, by `own`, is read in its place, and no more of it. Throws DataError where it has another shape or type.
std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group,
                                    const std::vector<NamedTensor>& own = {});

}  // namespace reigen::tensor
