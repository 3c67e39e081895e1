// Tensor parallelism: the ranks along one axis of a mesh divide the weights of a model's layers, and compute each layer
// together. The model's own code does not change: it may be any torch::nn::Module.
//
//   using namespace reigen::parallel;
//   reigen::Mesh mesh(world, {{"dp_shard", reigen::mesh::kRest}, {"tp", 2}});
//   auto divided = parallelize(*model, mesh, {{"*.attention.w[qkv]", column({.block = head_width})},
//                                             {"*.attention.wo", row({.block = head_width})},
//                                             {"*.w[13]", column()}, {"*.w2", row()},
//                                             {"embed", vocabulary()}, {"output", column()}});
//   auto parallel = reigen::data_parallel(model, world, {.tensor_parallel = divided});
//
// parallelize() replaces each weight of the plan by this rank's part of it. When the model's forward then uses such a
// weight in a linear layer or an embedding, Reigen runs the operation of tensor_operations.h in place of LibTorch's:
// column() divides the outputs of a linear layer, row() its inputs. So a pair of a column and a row layer needs one
// all_reduce, and everything between them runs on this rank's features alone. A model computes the number of its heads
// from its tensors (`view({b, t, -1, head_width})`), because a rank has only some of the heads.
//
// Losses, gradients, norms and weights are those of the model on one rank, up to rounding.
// With TensorParallelOptions::sequence the layers between such pairs hold only this rank's part of the sequence; their
// weights are named by sequence() in the plan. Their gradients are then sums over the ranks, which backward makes.
//
// Weights that the plan does not name are whole on every rank, and must compute the same on every rank. All ranks along
// the axis must give the model the same input. Dropout is refused: in divided layers the ranks would need different
// random numbers, and the same ones elsewhere.
//
// If a weight of the plan is used in an operation that is no linear layer and no embedding, an error names the weight
// and the operation. Without gradients only products of matrices are refused, because other code may look at weights.
//
// A plan may lack a shared() or a sequence(). Then each rank has only a part of a gradient. The optimizers of
// reigen::optim on the CPU compare the gradients of whole weights between the ranks, in their first two steps. If
// gradients differ, they throw InvalidArgument that names the weight.
//
// Source: Shoeybi et al., Megatron-LM, https://arxiv.org/abs/1909.08053
//
// Thread rule: parallelize() acts on forwards of the thread that calls it; for other threads see use_on_this_thread().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reigen/layout/choose.h"
#include "reigen/layout/model.h"
#include "reigen/mesh/mesh.h"
#include "reigen/parallel/tensor_operations.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

// How the weights of a module are divided.
struct Style {
  enum class Kind { kColumn, kRow, kVocabulary, kSequence, kPositions, kShared };
  Kind kind = Kind::kColumn;
  // The divided dimension consists of blocks of so many elements, which stay together: the width of a head, for
  // example. Of n blocks each of P ranks has n / P, rounded down, and the first n % P ranks have one more.
  std::int64_t block = 1;
  // The divided dimension consists of so many sections of the same size, and each rank has its part of each section. A
  // joint projection of queries, keys and values has three. Only for kColumn.
  std::int64_t sections = 1;
  // kColumn: every rank gets the outputs of all ranks.
  bool gather_output = false;
};

struct ColumnOptions {
  std::int64_t block = 1;
  std::int64_t sections = 1;
  bool gather_output = false;
};
struct RowOptions {
  std::int64_t block = 1;
};
// A linear layer whose outputs are divided: some rows of its weight [out, in], and the same elements of its bias. With
// gather_output the bias is whole.
Style column(const ColumnOptions& options = {});
// A linear layer whose inputs are divided: some columns of its weight. The bias is whole on every rank.
Style row(const RowOptions& options = {});
// An embedding whose rows are divided. A linear layer may use the same weight (tied weights): it is then a column
// layer.
Style vocabulary();
// A module whose own weights (not those of modules in it) are whole, and which computes on this rank's part of the
// sequence: a norm. Without TensorParallelOptions::sequence it changes nothing.
Style sequence();
// A module whose weights are whole, and which computes with this rank's features only: a norm of each head's queries,
// or a linear layer of keys that all ranks share because there are fewer heads of keys than ranks. The gradients of its
// weights, and of a linear layer's input, are summed over the ranks.
Style shared();
// An embedding of positions that is added to that of tokens. Its table is whole. With TensorParallelOptions::sequence
// a rank gets only the rows of its part of the sequence, when the model takes them by narrow(), slice() or an
// embedding. It must take them for all positions, not for those of a part. Without `sequence`, it changes nothing.
Style positions();

// Pairs of a pattern and a style. A pattern is a module's name in the model ("layers.0.attention.wq"), in which `*`
// means any number of characters (also dots), `?` one character, and `[abc]` one of these characters. The first pattern
// that fits a module counts.
using Plan = std::vector<std::pair<std::string, Style>>;

struct TensorParallelOptions {
  std::string axis = "tp";
  bool sequence = false;       // sequence parallelism between the divided layers
  std::int64_t dimension = 1;  // the dimension of the sequence in activations
};

// A model whose weights are divided. A handle: copies refer to the same model.
class TensorParallel {
 public:
  struct State;
  TensorParallel() = default;
  explicit TensorParallel(std::shared_ptr<State> state);

  // Whether there is a model.
  explicit operator bool() const { return state_ != nullptr; }
  // The ranks that divide the weights.
  const Region& region() const;
  const mesh::Mesh& mesh() const;
  const std::string& axis() const;
  // The divided parameters, for layout::Choices::splits.
  const std::map<std::string, layout::Split>& splits() const;
  // False for every parameter if there is no model.
  bool divides(const std::string& parameter) const { return state_ != nullptr && splits().contains(parameter); }
  // The shape of a parameter of the whole model. Throws InvalidArgument for a parameter that is not divided.
  const layout::Shape& whole_shape(const std::string& parameter) const;
  // Both are collective over the ranks of the region, and throw InvalidArgument for a parameter that is not divided and
  // for another shape. No rank but `root` needs memory for the whole parameter; `root` needs that of one part besides.
  //   scatter: part on rank r = the part of rank r of `whole` on root. Other ranks may give an undefined `whole`.
  //   gather:  returns on root the values of which rank r gives its part; on other ranks an undefined tensor.
  // Cost: root sends or receives the parts of the other ranks, one after the other.
  void scatter(const std::string& parameter, const at::Tensor& whole, at::Tensor part, int root) const;
  at::Tensor gather(const std::string& parameter, const at::Tensor& part, int root) const;
  // Forwards of the calling thread use the divided weights from now on, until the thread ends. data_parallel() calls it
  // before each forward.
  void use_on_this_thread() const;

 private:
  std::shared_ptr<State> state_;
};

// Collective and blocking over the ranks of the axis; see the example above. All ranks get the values of the first
// rank. If the model was made without memory (nn/without_memory.h), it stays so, and no rank ever needs the whole
// model: DataParallelOptions::initialize sets the whole values of one parameter at a time, and each rank keeps its
// part. Throws InvalidArgument on every rank if the models or the plans of the ranks differ; if the model is divided
// already; if a pattern fits no module; if a style does not fit the module (a row() for an
// embedding, for example); if a dimension has fewer blocks than there are ranks along the axis, or does not consist of
// whole blocks and sections; if the mesh has no such axis.
TensorParallel parallelize(torch::nn::Module& model, const mesh::Mesh& mesh, const Plan& plan,
                           const TensorParallelOptions& options = {});

}  // namespace reigen::parallel

namespace reigen {
using parallel::parallelize;
using parallel::TensorParallel;
}  // namespace reigen
