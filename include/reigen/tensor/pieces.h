// Writes tensors to checkpoints and reads them from checkpoints. A checkpoint::Piece describes the bytes of a tensor,
// or of a part of it, without LibTorch, because the code in reigen/checkpoint/ does not use LibTorch.
//
//   const Pieces model(tensors_of(module));
//   checkpoint::save("run/checkpoints", {.step = 100}, {{"model", model.pieces()}}, 3, world);
//   ...
//   const auto found = checkpoint::find_newest("run/checkpoints");
//   read_into(*found.newest, "model", tensors_of(module));
//
// Thread rule: the functions have no shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::tensor {

// The pieces that a rank writes into a checkpoint. Each piece is a whole tensor, or the part of it that the rank has.
// Contiguous tensors on the CPU are not copied. So their memory must not change until the call that saves them
// (checkpoint::save() or Saver::save()) has returned. All other tensors are copied. Throws InvalidArgument for an
// element type that the files do not have, and for sharded weights that are not gathered.
class Pieces {
 public:
  explicit Pieces(const std::vector<NamedTensor>& tensors);
  const std::vector<checkpoint::Piece>& pieces() const { return pieces_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<checkpoint::Piece> pieces_;
};

// Whether a tensor of this name belongs to the stage of another rank (pipeline parallelism), which reads it.
using IsElsewhere = std::function<bool(std::string_view name)>;

// For each tensors[i], reads the tensor of the same name in the checkpoint's `group` into the memory of tensors[i]. If
// this rank has only a part of the tensor, it reads only this part. Throws DataError if a tensor is missing, unknown,
// or of another shape or type; the error names the first such tensor. Throws InvalidArgument for sharded weights that
// are gathered and freed one unit (part of the model) at a time (use data_parallel's load() for them). In both cases
// nothing changes. Tensors for which is_elsewhere() is true are left out.
void read_into(const checkpoint::Checkpoint& from, std::string_view group, const std::vector<NamedTensor>& tensors,
               const IsElsewhere& is_elsewhere = {});

// Reads all tensors of the checkpoint's `group`, in the order of the manifest. Returns an empty vector if the
// checkpoint has no such group. Each tensor is read whole, with one exception: if `own` has an entry of the same name
// with a part of the tensor, only this part is read, into the memory of that entry. Throws DataError if the entry has
// another shape or type than the tensor in the file. Tensors for which is_elsewhere() is true are left out.
std::vector<NamedTensor> read_group(const checkpoint::Checkpoint& from, std::string_view group,
                                    const std::vector<NamedTensor>& own = {}, const IsElsewhere& is_elsewhere = {});

}  // namespace reigen::tensor
