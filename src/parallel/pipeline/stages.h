// Which rank of a pipeline holds which tensors of a model, and the module with the tensors of this rank.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/layout/model.h"
#include "reigen/nn/unit.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

InvalidArgument refused_by_pipeline(const std::string& what, const std::string& got, const std::string& expected,
                                    const std::string& fix);

class Stages {
 public:
  // `first_units`: the first unit of each stage. `placement`: the coordinate of the ranks that hold each stage. `here`:
  // this rank's coordinate. Throws InvalidArgument if a parameter or buffer belongs to no unit, or if a unit is not the
  // module of its name, or comes twice.
  Stages(torch::nn::Module& model, std::vector<nn::Unit> units, std::vector<std::size_t> first_units,
         std::vector<int> placement, int here);

  const std::vector<nn::Unit>& units() const { return units_; }
  const std::vector<std::size_t>& first_units() const { return first_units_; }
  int count() const { return static_cast<int>(first_units_.size()); }
  // The units [first, second) belong to the stage.
  std::pair<std::size_t, std::size_t> units_of(int stage) const;
  bool holds(int stage) const { return placement_[static_cast<std::size_t>(stage)] == here_; }

  // A module with the units of this rank's stages at their places in the whole model. Parameters have the names and the
  // order that they have in the whole model: a tied weight whose first name lies in another rank's unit is registered
  // under this name too.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  const std::vector<layout::TensorSpec>& parameters() const { return parameters_; }
  // Whether a unit of the stage has a trainable parameter.
  bool trains_in(int stage) const;
  // The stage to which a unit belongs.
  int stage_of(std::size_t unit) const;
  // Whether the ranks with this coordinate hold a trainable parameter.
  bool trains(int coordinate) const;
  bool is_elsewhere(std::string_view name) const;
  bool gives(std::string_view name) const;
  // The parameters that stages on several ranks use, by the sorted coordinates of these ranks.
  std::map<std::vector<int>, std::vector<layout::TensorSpec>> tied() const;

  // Frees the memory of the tensors that this rank does not hold.
  void free_others(torch::nn::Module& model) const;

 private:
  // A name of a parameter or buffer. All names of a tied tensor have the same `coordinates`.
  struct Held {
    std::shared_ptr<std::vector<int>> coordinates;  // of the ranks that hold the tensor: that of its first name first
    int giver = 0;                                  // the coordinate that writes this name into checkpoints
  };
  std::size_t unit_of(const std::string& name) const;
  int coordinate_of(std::size_t unit) const;
  void note(const std::string& name, std::shared_ptr<std::vector<int>>& coordinates);
  void make_module(const torch::nn::Module& model);
  bool is_here(const Held& held) const;
  const Held* find(std::string_view name) const;

  std::vector<nn::Unit> units_;
  std::vector<std::size_t> first_units_;
  std::vector<int> placement_;
  int here_ = 0;
  std::map<std::string, Held, std::less<>> held_;
  std::vector<layout::TensorSpec> parameters_;
  std::shared_ptr<torch::nn::Module> module_;
};

}  // namespace reigen::parallel
