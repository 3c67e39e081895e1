// Converts named tensors to and from the pieces of checkpoints, which know nothing of LibTorch (reigen/checkpoint/).
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

// The tensors that a rank gives to a checkpoint: whole, or the part that it has. Contiguous tensors are borrowed:
// their memory must not change until the checkpoint is written or copied. Other tensors are copied. Throws
// InvalidArgument for an element type that files do not have, and for weights that ranks divide and have not gathered.
class Pieces {
 public:
  explicit Pieces(const std::vector<NamedTensor>& tensors);
  const std::vector<checkpoint::Piece>& pieces() const { return pieces_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<checkpoint::Piece> pieces_;
};

// Reads into tensors[i], in place, the tensor of that name in the group, or the part of it that this rank has. Throws
// DataError naming the first tensor that is missing, unknown or of another shape or type, and InvalidArgument for
// weights that ranks divide (data_parallel's load() is for those); nothing is changed then.
void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors);

// Reads all tensors of a group, whole, in the order of the manifest. Empty if there is no such group. If `own` has a
// part of a tensor, only this part is read, in place. Throws DataError if such a tensor has another shape or type.
std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group,
                                    const std::vector<NamedTensor>& own = {});

}  // namespace reigen::tensor
