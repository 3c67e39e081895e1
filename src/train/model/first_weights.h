// run.weights: the values with which a training or an evaluation begins, from a file that says nothing of a run.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "reigen/checkpoint/weights.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/config.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::train {

// What run.weights names: a path, or `best` or `last` of run.dir. Throws as best_checkpoint_of(), and InvalidArgument
// without run.dir.
std::string weights_path_of(const RunConfig& config);

class FirstWeights {
 public:
  // `path`: whatever checkpoint::Weights reads. Of a checkpoint in checkpoints/best the averaged weights are taken, if
  // it has any, because it was chosen by their figures. Compares names and shapes with those of the whole module.
  // Throws DataError, with the names, if `strict` and something does not fit, and if nothing fits. Throws as
  // checkpoint::Weights.
  FirstWeights(const std::string& path, const torch::nn::Module& module, bool strict);

  // What did not fit, as a text for people; empty if everything did.
  const std::string& differences() const { return differences_; }

  // Sets the values of those tensors that fit and have memory. They may be of another type than the file's.
  void read_into(const std::vector<tensor::NamedTensor>& tensors) const;

 private:
  checkpoint::Weights weights_;
  std::set<std::string> fit_;
  std::string differences_;
};

}  // namespace reigen::train
