// What a SummaryWriter writes, made from tensors and modules: histograms and graphs.
// Thread rule: a Buckets belongs to one thread; the functions have no state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/format/event_file.h"
#include "reigen/nn/unit.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::train {

// Counts finite numbers in buckets whose limits grow by a tenth. Several ranks can each count a part of a tensor.
class Buckets {
 public:
  // The limits of both signs, from 1e-12 to 1e20, 0 and the largest number at each end.
  static const std::vector<double>& limits();
  Buckets();

  // Any number type, device and strides. Costs about 10 ns an element, and little memory.
  void add(const at::Tensor& values);
  // The buckets from the first to the last that has elements, with an empty one before them, which says where the first
  // one begins. Without elements: one empty bucket.
  format::Histogram histogram() const;

  // Collective. Replaces the counts of each rank by those of all ranks together: all[i] is the same thing on each rank.
  // The sums are added in rank order.
  static void merge(std::vector<Buckets>& all, const Communicator& world);

 private:
  std::vector<double> sums_;  // the count of each bucket, the sum, the sum of squares
  double min_, max_;
};

// The tree of the modules. Each module is a scope with the nodes of its parameters and buffers, and a node of its class
// that they lead to. Nodes of `units` are connected in their order. `shape_of`: the shape of the whole parameter of
// this name, if the module has only a part of it; may be empty.
std::vector<format::GraphNode> graph_of(
    const torch::nn::Module& module, const std::vector<nn::Unit>& units,
    const std::function<std::vector<std::int64_t>(const std::string& name, const at::Tensor& own)>& shape_of = {});

// "Linear" for a torch::nn::LinearImpl.
std::string class_of(const torch::nn::Module& module);

}  // namespace reigen::train
