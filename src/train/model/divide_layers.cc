#include "train/model/divide_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/nn/without_memory.h"

namespace reigen::train {

void open_mesh(Run& run) {
  const std::int64_t tp = run.config.mesh.tp;
  if (tp == 1) return;
  const std::int64_t ranks = run.world.size();
  const std::int64_t replicas = run.config.parallel.replicas;
  if (ranks % (tp * replicas) != 0) {
    std::vector<std::int64_t> possible;
    for (std::int64_t degree = 1; degree * replicas <= ranks; ++degree) {
      if (ranks % (degree * replicas) == 0) possible.push_back(degree);
    }
    throw InvalidArgument(
        Report{.what = "mesh.tp does not divide the ranks",
               .got = fmt::format("mesh.tp {}, parallel.replicas {}, {}", tp, replicas, base::counted(ranks, "rank")),
               .expected = possible.empty() ? "a number of ranks that parallel.replicas divides"
                                            : fmt::format("mesh.tp {}", fmt::join(possible, ", ")),
               .fix = fmt::format("choose one of these, or start {}",
                                  base::counted((ranks / (tp * replicas) + 1) * tp * replicas, "rank"))});
  }
  run.mesh.emplace(run.world, std::vector<mesh::Axis>{{"dp_replicate", static_cast<int>(replicas)},
                                                      {"dp_shard", mesh::kRest},
                                                      {"tp", static_cast<int>(tp)}});
  run.data = run.mesh->along({"dp_replicate", "dp_shard"});
  run.say("mesh: " + run.mesh->to_text());
  if (!run.mesh->along("tp").shares_memory() && run.device.is_cpu()) {
    run.say(
        fmt::format("warning: the {} ranks of mesh.tp share no memory, so each layer sends activations over the "
                    "network",
                    tp));
  }
}

parallel::TensorParallel divide_layers(Run& run) {
  const parallel::Plan plan = run.task.tensor_plan();
  if (plan.empty()) {
    throw InvalidArgument(
        Report{.what = fmt::format("mesh.tp: the task {} does not say how to divide its model", run.task.name()),
               .expected = "the recipe gpt or llama, or a task with tensor_plan()",
               .fix = "leave mesh.tp out, or give the task a plan (reigen/parallel/tensor_parallel.h)"});
  }
  const std::vector<at::Tensor> parameters = run.task.module().parameters();
  if (std::any_of(parameters.begin(), parameters.end(), nn::has_no_memory)) {
    throw InvalidArgument(Report{.what = "mesh.tp needs a model with memory",
                                 .got = "a module that was made under nn::WithoutMemory",
                                 .fix = "make it without that where config.mesh.tp is above 1"});
  }
  return parallel::parallelize(run.task.module(), *run.mesh, plan, {.sequence = run.config.mesh.sequence});
}

}  // namespace reigen::train
