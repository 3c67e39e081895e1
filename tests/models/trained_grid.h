// Trains a small Llama or GPT in a layout (grid.h), and compares with one rank.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "comm/agree.h"
#include "harness/ranks.h"
#include "harness/torch.h"
#include "models/grid.h"
#include "reigen/layout/part.h"
#include "reigen/mesh/mesh.h"
#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"
#include "reigen/models/tensor_plan.h"
#include "reigen/optim/adamw.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/lamb.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/parallel/tensor_operations.h"
#include "reigen/tensor/collectives.h"

namespace reigen::models {
namespace {

using testing::Rank;
using testing::RankKind;

// Writes this rank's parts of the weights into the whole weights. No two ranks may give the same element.
void collect(const std::vector<tensor::NamedTensor>& parts, std::map<std::string, at::Tensor>& whole) {
  for (const tensor::NamedTensor& item : parts) {
    at::Tensor& to = whole[item.name];
    const layout::Shape shape = item.whole_shape();
    if (!to.defined()) to = at::full(shape, NAN, item.tensor.scalar_type());
    const layout::Part part = item.part.value_or(layout::whole(shape));
    layout::Runs runs(shape, part);
    const at::Tensor from = item.tensor.detach().contiguous().view({-1});
    while (const auto run = runs.next()) {
      EXPECT_TRUE(to.view({-1}).narrow(0, run->global, run->count).isnan().all().item<bool>()) << item.name;
      to.view({-1}).narrow(0, run->global, run->count).copy_(from.narrow(0, part.first + run->local, run->count));
    }
  }
}

Communicator data_of(const mesh::Mesh& mesh) { return mesh.along({"dp_replicate", "dp_shard"}); }

// A model on the ranks of a grid, and one step of it.
template <class Model>
class Trained {
 public:
  template <class Options>
  Trained(const Grid& grid, const Options& options, const Communicator& world)
      : grid_(grid),
        mesh_(world, {{"pp", grid.pp},
                      {"dp_replicate", grid.replicate},
                      {"dp_shard", grid.shard},
                      {"cp", grid.cp},
                      {"tp", grid.tp}}),
        data_(data_of(mesh_)),
        model_(options) {
    model_.to(grid.single ? at::kFloat : at::kDouble);
    model_.initialize(1);
    divided_ = parallel::parallelize(model_, mesh_, tensor_plan(options), {.sequence = grid.sequence});
    context_ = ContextParallel(mesh_);
    if (grid.pp > 1) {
      pipeline_ = parallel::pipeline(model_, mesh_, {.schedule = grid.schedule, .virtual_stages = grid.virtual_stages});
    }
    parallel_.emplace(data_parallel(
        model_, world,
        {.shard = grid.stage, .tensor_parallel = divided_, .pipeline = pipeline_, .context_parallel = context_}));
  }

  parallel::DataParallelBase& parallel() { return *parallel_; }
  const mesh::Mesh& mesh() const { return mesh_; }

  // Forward and backward of a step. Returns the loss of the whole batch.
  double step() {
    double loss = pipeline_ ? step_of_stages() : step_of_whole();
    for (const Communicator& ranks : {data_, context_.ranks()}) {
      ranks.all_reduce(&loss, &loss, 1, DataType::kFloat64, ReduceOp::kAvg);
    }
    if (pipeline_) {
      pipeline_.ranks().broadcast(&loss, 1, DataType::kFloat64,
                                  pipeline_.schedule_of(grid_.accumulation).placement.back());
    }
    return loss;
  }

 private:
  // This rank's inputs of a micro-batch, and its targets.
  at::Tensor input(int i) const { return context_.take(tokens(i).narrow(1, 0, grid_.positions())); }
  at::Tensor target(int i) const { return context_.take(tokens(i).narrow(1, 1, grid_.positions())); }
  at::Tensor tokens(int i) const {
    const std::int64_t micro = kBatch / grid_.data() / grid_.accumulation;
    return tokens_of(grid_.positions(), (data_.rank() * grid_.accumulation + i) * micro, micro);
  }
  at::Tensor loss_of(const at::Tensor& scores, int i) const {
    return parallel::vocab_parallel_cross_entropy(scores, target(i), vocab_part(kVocab, divided_),
                                                  divided_.region().group) /
           grid_.accumulation;
  }
  double step_of_whole() {
    double loss = 0;
    for (int i = 0; i < grid_.accumulation; ++i) {
      std::optional<parallel::NoSync> only_adds_up;
      if (i + 1 < grid_.accumulation) only_adds_up.emplace(parallel_->no_sync());
      const at::Tensor one = loss_of((*parallel_)(input(i)), i);
      one.backward();
      loss += one.template item<double>();
    }
    return loss;
  }
  double step_of_stages() {
    double loss = 0;
    pipeline_.step(*parallel_, grid_.accumulation,
                   {.input = [&](int i) { return nn::Carry{input(i)}; },
                    .loss =
                        [&](int i) {
                          const at::Tensor one = loss_of(model_.forward(input(i)), i);
                          loss += one.template item<double>();
                          return one;
                        }});
    return loss;
  }

  const Grid& grid_;
  mesh::Mesh mesh_;
  Communicator data_;
  Model model_;
  parallel::TensorParallel divided_;
  ContextParallel context_;
  parallel::Pipeline pipeline_;
  std::optional<parallel::DataParallel<Model>> parallel_;
};

// The ranks along tp are on one machine, those along dp_shard on different machines. So nothing of tensor parallelism
// goes over the network, only gradients, and weights if they are divided.
void expect_tensors_stay_in_machines(const mesh::Mesh& mesh, const std::vector<ParameterRange>& parameters) {
  EXPECT_EQ(mesh.along("tp").network_bytes(), 0U);
  const std::uint64_t bytes = mesh.along("dp_shard").network_bytes().value() +
                              mesh.along({"dp_replicate", "dp_shard", "cp"}).network_bytes().value();
  std::uint64_t weights = 0;
  for (const ParameterRange& range : parameters) weights += static_cast<std::uint64_t>(range.values().nbytes());
  // Each rank sends the values with which training begins at most once.
  EXPECT_GE(bytes, weights * kSteps / 2);
  EXPECT_LE(bytes, weights * (kSteps + 1) * 11 / 10);
}

template <class Model, class Options>
void train(const Grid& grid, const Options& options, const Communicator& world, Result& result,
           const std::function<void(const std::vector<tensor::NamedTensor>&)>& keep) {
  Trained<Model> model(grid, options, world);
  parallel::DataParallelBase& parallel = model.parallel();
  std::optional<optim::AdamW> adamw;
  std::optional<optim::LAMB> lamb;
  if (grid.lamb)
    lamb.emplace(parallel.parameters(), optim::LAMBOptions{.lr = 0.1});
  else
    adamw.emplace(parallel.parameters(), optim::AdamWOptions{.lr = 0.01});
  for (int step = 0; step < kSteps; ++step) {
    const double loss = model.step();
    const double norm = optim::gradient_norm(parallel.parameters()).norm;
    // AdamW's first steps are as long for a gradient that is nothing but rounding as for any other. So in fp32 the rate
    // warms up (docs/decisions/0005-rounding-and-the-first-steps.md).
    const double part = grid.single ? (step + 1.0) / kSteps : 1;
    if (adamw) adamw->set_lr(0.01 * part * part);
    const optim::StepOptions how{.gradient_factor = optim::clip_factor(norm, 0.5)};
    lamb ? lamb->step(how) : adamw->step(how);
    lamb ? lamb->zero_grad() : adamw->zero_grad();
    if (world.rank() != 0) continue;
    result.losses.push_back(loss);
    result.norms.push_back(norm);
  }
  parallel.gather_weights();
  keep(parallel.own_weights());
  if (grid.ranks_a_machine > 0) expect_tensors_stay_in_machines(model.mesh(), parallel.parameters());
}

void train(const Grid& grid, const Communicator& world, Result& result,
           const std::function<void(const std::vector<tensor::NamedTensor>&)>& keep) {
  if (grid.gpt)
    train<Gpt>(grid, gpt_of(grid), world, result, keep);
  else
    train<Llama>(grid, llama_of(grid), world, result, keep);
}

Result trained(const Grid& grid) {
  Result result;
  std::mutex mutex;
  testing::run_ranks({.ranks = grid.ranks(), .backend = grid.backend, .ranks_a_machine = grid.ranks_a_machine},
                     [&](Rank& rank) {
                       const auto keep = [&](const std::vector<tensor::NamedTensor>& parts) {
                         const std::lock_guard lock(mutex);
                         collect(parts, result.weights);
                       };
                       train(grid, rank.world(), result, keep);
                     });
  return result;
}

const Result& on_one_rank(const Grid& grid) {
  static std::map<std::tuple<bool, bool, bool, bool, bool>, Result> known;
  const bool even = grid.positions() == 12;
  const auto [place, is_new] = known.try_emplace({grid.tied, grid.gpt, grid.lamb, even, grid.single});
  if (is_new) {
    place->second =
        trained({.tied = grid.tied, .gpt = grid.gpt, .lamb = grid.lamb, .even = even, .single = grid.single});
  }
  return place->second;
}

// In fp32 the weights of the whole model are compared together.
void expect_the_same(const Grid& grid, const Result& found) {
  const Result& expected = on_one_rank(grid);
  const double tolerance = grid.single ? 1e-5 : 1e-9;
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * expected.losses[i]);
    EXPECT_NEAR(found.norms[i], expected.norms[i], tolerance * expected.norms[i]);
  }
  EXPECT_EQ(found.weights.size(), expected.weights.size());
  double apart = 0, all = 0;
  for (const auto& [name, weight] : expected.weights) {
    ASSERT_TRUE(found.weights.contains(name)) << name;
    const at::Tensor difference = found.weights.at(name) - weight;
    if (!grid.single) {
      EXPECT_LT(difference.abs().max().item<double>(), tolerance) << name;
    }
    apart += difference.square().sum(at::kDouble).item<double>();
    all += weight.square().sum(at::kDouble).item<double>();
  }
  EXPECT_LE(std::sqrt(apart / all), tolerance);
  EXPECT_GT(expected.losses.front() - expected.losses.back(), 0.1);  // the model learns
}

}  // namespace
}  // namespace reigen::models
