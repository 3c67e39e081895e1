// Converts named tensors to and from the pieces of checkpoints. The code of checkpoints (reigen/checkpoint/) does not
// use LibTorch.
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

// The tensors that a rank gives to a checkpoint: whole tensors, or the part that the rank has. Contiguous tensors are
// not copied: their memory must not change until the checkpoint is written or copied. Other tensors, and those of a
// GPU, are copied. Throws InvalidArgument for an element type that files do not have, and for sharded weights that are
// not gathered.
class Pieces {
 public:
  explicit Pieces(const std::vector<NamedTensor>& tensors);
  const std::vector<checkpoint::Piece>& pieces() const { return pieces_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<checkpoint::Piece> pieces_;
};

// Reads into tensors[i], in place, the group's tensor of the same name, or the part of it that this rank has. Throws
// DataError naming the first tensor that is missing, unknown or of another shape or type. Throws InvalidArgument for
// sharded weights that are gathered unit by unit (use data_parallel's load() for these). In both cases nothing is
// changed.
void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors);

// Reads all tensors of a group, whole, in the order of the manifest. Empty if there is no such group. If `own` contains
// a part of a tensor, only this part is read, in place. Throws DataError if the tensor in the file has another shape or
// type.
std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group,
                                    const std::vector<NamedTensor>& own = {});

}  // namespace reigen::tensor
