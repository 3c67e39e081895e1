// Measures the bubble of pipeline schedules: stages that sleep a set time, so that nothing but the order of the actions
// and the messages decides. Prints a line for each schedule, as JSON: measured by the ranks, predicted by replay(), and
// by the formula.
//
//   reigen run -n 4 build/bench/pipeline_bubble [milliseconds of a forward, default 10]
#include <torch/nn/module.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "reigen/reigen.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/replay.h"
#include "tensor/differentiable.h"

namespace {

double forward_s = 0.010;    // of all stages of a rank
double stage_s = forward_s;  // of one stage

void rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Forward, the gradient of the input and the gradient of the weight take the same time.
struct Sleeper : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return reigen::tensor::apply_keeping_inputs(
        {x, weight},
        [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
          rest(stage_s);
          return {in[0] * in[1]};
        },
        [](const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
          at::Tensor of_x, of_weight;
          // The first stage computes no gradient of its input, so its weight takes the whole time.
          const bool wants_x = in[0].requires_grad();
          if (wants_x) {
            rest(stage_s);
            of_x = gradients[0] * in[1];
          }
          if (in[1].requires_grad()) {
            rest(stage_s);
            of_weight = (gradients[0] * in[0]).sum().view({1});
          }
          return {of_x, of_weight};
        })[0];
  }
  at::Tensor weight = register_parameter("weight", at::ones({1}));
};

struct Row : torch::nn::Module {
  explicit Row(int stages) {
    for (int i = 0; i < stages; ++i) {
      const std::string name = "stage" + std::to_string(i);
      parts.emplace_back(name, register_module(name, std::make_shared<Sleeper>()));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return reigen::nn::fold(parts, x); }
  const std::vector<reigen::nn::Unit>& units() const { return parts; }
  std::vector<reigen::nn::Unit> parts;
};

void measure(const reigen::Communicator& world, reigen::schedule::Name name, int micro_batches, int virtual_stages) {
  namespace nn = reigen::nn;
  namespace schedule = reigen::schedule;
  stage_s = forward_s / virtual_stages;  // the model is the same for all schedules
  const schedule::Size size{.ranks = world.size(), .micro_batches = micro_batches, .virtual_stages = virtual_stages};
  Row model(world.size() * virtual_stages);
  const reigen::Mesh mesh(world, {{"pp", world.size()}});
  const auto pipes = reigen::pipeline(model, mesh, {.schedule = name, .virtual_stages = virtual_stages});
  auto parallel = reigen::data_parallel(model, world, {.pipeline = pipes});
  const at::Tensor x = at::ones({64, 64}).requires_grad_(true);  // so that the first stage also computes this gradient
  const reigen::parallel::PipelineStep step{.input = [&](int) { return nn::Carry{x}; },
                                            .loss = [&](int) { return model.forward(x).sum(); }};
  std::vector<double> bubbles, totals;
  for (int round = 0; round < 6; ++round) {
    for (const reigen::ParameterRange& range : parallel.parameters()) range.drop_gradients();
    world.barrier();
    pipes.step(parallel, micro_batches, step);
    const schedule::Replay all = pipes.gather_last();
    if (round == 0) continue;  // warms up
    bubbles.push_back(all.bubble);
    totals.push_back(all.total);
  }
  std::sort(bubbles.begin(), bubbles.end());
  std::sort(totals.begin(), totals.end());
  const schedule::Replay predicted = replay(
      pipes.schedule_of(micro_batches),
      {.stages = {
           {.forward = stage_s, .backward = 2 * stage_s, .backward_input = stage_s, .backward_weight = stage_s}}});
  if (world.rank() != 0) return;
  std::printf(
      "{\"schedule\": \"%s\", \"ranks\": %d, \"micro_batches\": %d, \"virtual_stages\": %d, \"bubble\": %.4f, "
      "\"replay\": %.4f, \"formula\": %.4f, \"seconds\": %.4f, \"seconds_replay\": %.4f}\n",
      to_text(name), world.size(), micro_batches, virtual_stages, bubbles[bubbles.size() / 2], predicted.bubble,
      schedule::bubble_formula(name, size), totals[totals.size() / 2], predicted.total);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using reigen::schedule::Name;
  if (argc > 1) forward_s = std::stod(argv[1]) * 1e-3;
  auto world = reigen::init();
  for (const int micro_batches : {4, 8, 16, 32}) {
    measure(world, Name::kGpipe, micro_batches, 1);
    measure(world, Name::kOneFOneB, micro_batches, 1);
    measure(world, Name::kInterleaved, micro_batches, 2);
    measure(world, Name::kLoopedBreadthFirst, micro_batches, 2);
    measure(world, Name::kZeroBubbleH1, micro_batches, 1);
    measure(world, Name::kZeroBubbleV, micro_batches, 2);
  }
}
