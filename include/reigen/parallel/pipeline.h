// Pipeline parallelism: the ranks along a mesh axis hold different units of a model, and work on different
// micro-batches at the same time. Every layout gives the losses and gradients of one process.
//
//   reigen::Mesh mesh(world, {{"pp", 2}, {"dp_shard", reigen::mesh::kRest}});
//   auto pipeline = reigen::pipeline(model, mesh, {.schedule = reigen::schedule::Name::kOneFOneB});
//   auto parallel = reigen::data_parallel(model, world, {.pipeline = pipeline});
//   reigen::optim::AdamW optimizer(parallel.parameters(), {.lr = 1e-3});
//   for (...) {
//     pipeline.step(parallel, 4, {.input = [&](int i) { return reigen::nn::Carry{inputs[i]}; },
//                                 .loss = [&](int i) { return mse(model.forward(inputs[i]), targets[i]) / 4; }});
//     optimizer.step();
//     optimizer.zero_grad();
//   }
//
// pipeline() divides the model's units (nn/unit.h) into stages: runs of units that follow each other. Stage s lies on
// the rank with coordinate schedule.placement[s] along the axis. Each rank keeps the memory of its own stages, and
// frees that of the other stages. step() runs the actions of a schedule (reigen/schedule/schedule.h). A stage sends its
// output to the next stage, and the gradient of its input to the stage before, with types and shapes. `loss` runs on
// the rank of the last stage. There model.forward() runs only the units of the last stage; the first of them takes what
// other stages have sent. A unit of an earlier stage returns what the unit before it returned, and an empty tensor in
// place of each tensor that it gives by a skip connection. So the forward must compute nothing between units, nothing
// before the first one, and must not look at what they return. step() must not be called under no_sync().
//
// Skip connections (nn/skips.h) carry a tensor from a unit to a later one, past the units between. They may end in any
// stage: in the same one, in the next one, where the tensor is part of the message between neighbours, or in a later
// one, to which it goes directly. Its gradient goes back the same way. A forward that calls units by itself finds the
// tensors that a unit gives at the end of what it returns. Before them a unit of an earlier stage may return another
// number of tensors than its own forward does; fold() works with any number.
//
// With m micro-batches, let L_i be what `loss` returns for micro-batch i. After step(), `.grad` of each parameter is
//   the mean over the data-parallel ranks of (d/dw of L_0 + ... + L_(m-1)),
// as if one process had called backward() for each L_i. A parameter that stages on several ranks use (tied weights) has
// the sum of all these stages' gradients on each of these ranks; its copies begin with the values of the first stage.
//
// Messages go from a rank to the rank with the same other coordinates: with tensor parallelism to the rank with the
// same part. Cost of a step on the wire, for each micro-batch and pair of neighbouring stages on different ranks: the
// output and its gradient, and a message of 1 KiB with types and shapes. The output includes the tensors of skip
// connections to the next stage. The same for each pair of stages on different ranks that skip connections join over
// another stage. Each tensor after the 11th of a pair adds at most 88 bytes. The time in which ranks wait is that of
// the schedule (docs/pipeline.md).
//
// Memory: a stage keeps its input and output for each micro-batch in flight, also what it gives and gets by skip
// connections. A rank receives the tensor of a skip connection, or its gradient, just before it needs it
// (schedule::add_messages()); until then it lies on the rank that sends it.
//
// Errors: an exception in a stage ends the group of all ranks. Every other rank throws Aborted, which names the rank,
// the stage, the micro-batch and the error. Ranks whose lists do not fit together throw CollectiveMismatch. Thread
// rule: one thread at a time, the one that runs forwards and backwards.
//
// Source: Huang et al., GPipe, https://arxiv.org/abs/1811.06965; Narayanan et al., https://arxiv.org/abs/2104.04473
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reigen/layout/model.h"
#include "reigen/mesh/mesh.h"
#include "reigen/nn/skips.h"
#include "reigen/nn/unit.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/replay.h"
#include "reigen/schedule/schedule.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

class DataParallelBase;

struct PipelineOptions {
  std::string axis = "pp";
  schedule::Name schedule = schedule::Name::kOneFOneB;
  int virtual_stages = 1;  // stages on each rank; see schedule::virtual_stages_of()
  // A schedule of your own, for its number of micro-batches only. It has as many ranks as the axis. Messages are added
  // if it has none. It must have the model's skip connections that lead over a stage, and no others. `schedule` and
  // `virtual_stages` then have no effect.
  std::optional<schedule::Schedule> own = {};
  // The model's units, in the order in which its forward calls them. If it is empty, pipeline() uses model.units().
  std::vector<nn::Unit> units = {};
  // The model's skip connections between units. If it is empty, pipeline() uses model.skips(), where there is one.
  std::vector<nn::Skip> skips = {};
  // The index of the first unit of each stage. If it is empty, schedule::cut() makes the stages as equal as possible by
  // `costs`: one number for each unit, for example measured times. Without `costs` it is the number of parameters.
  std::vector<std::size_t> first_units = {};
  std::vector<double> costs = {};
};

// What a step computes. The numbers of micro-batches go from 0 to m - 1.
struct PipelineStep {
  // Returns the input of the model's first unit. Called on the ranks of the first stage, unless it is also the last.
  std::function<nn::Carry(int micro_batch)> input;
  // Calls the model's forward and returns the loss, a tensor with one element, on which backward is called. Called on
  // the ranks of the last stage.
  std::function<at::Tensor(int micro_batch)> loss;
  // If it is true, input() is called on the ranks of the last stage too, and the model's forward must give its first
  // unit equal tensors: what it computes before the first unit is lost in a pipeline. Throws InvalidArgument if it does
  // not. The comparison takes time, so it is meant for a first step.
  bool checks_input = false;
  // If it is set, it is called around each forward and backward of a stage, and must call run() once. For guards that
  // act while they live: autocast in forwards, for example.
  std::function<void(schedule::Kind kind, int micro_batch, const std::function<void()>& run)> around = {};
};

// What this rank did in its last step.
struct PipelineReport {
  // The actions with their begin and end, in seconds since the begin of the rank's step. A receive ends when the
  // message is there; waiting for it is part of the receive.
  std::vector<schedule::Span> spans = {};
  std::int64_t began = 0;        // nanoseconds since 1970: the begin of the rank's step
  double forward = 0;            // seconds in F
  double backward = 0;           // seconds in B, I and W
  double waiting = 0;            // seconds in receives and in waits for sends
  double total = 0;              // from the begin of the step to the end of the last action
  schedule::InFlight in_flight;  // counted; by_rank has only this rank's number, the others are 0
  std::uint64_t bytes_sent = 0;  // to other stages
  int micro_batches = 0;         // of the step; 0 before the first step
};

class Pipeline {
 public:
  struct State;
  Pipeline() = default;
  explicit Pipeline(std::shared_ptr<State> state);

  // Whether there is a pipeline.
  explicit operator bool() const { return state_ != nullptr; }

  const mesh::Mesh& mesh() const;
  const std::string& axis() const;
  // The ranks along the axis.
  const Communicator& ranks() const;
  // The parameters and buffers of this rank's stages, with their names in the whole model.
  torch::nn::Module& module() const;
  // All units of the model.
  const std::vector<nn::Unit>& units() const;
  // The first unit of each stage.
  const std::vector<std::size_t>& first_units() const;
  bool has_first_stage() const;
  bool has_last_stage() const;

  // Whether stages on several ranks use the same weight.
  bool has_tied_weights() const;
  // Whether the schedule divides backwards (I and W).
  bool splits_backward() const;
  // The parameters of the whole model. The stage of a parameter is the coordinate along the axis of the ranks that hold
  // it.
  const std::vector<layout::TensorSpec>& parameters() const;
  // Whether `name` is a parameter or buffer that this rank does not hold, or a state of one ("fc.weight.exp_avg").
  bool is_elsewhere(std::string_view name) const;
  // is_elsewhere() as a function; empty if there is no pipeline.
  std::function<bool(std::string_view name)> elsewhere() const;
  // Whether this rank's stages write `name` into a checkpoint. The ranks of the unit in which the name lies do: so each
  // name of a tied weight is written once. Names that belong to no parameter are written by the first coordinate.
  bool gives(std::string_view name) const;

  // The schedule for so many micro-batches, with messages. Throws InvalidArgument for a number below 1, and for a
  // number that a schedule of the user's own does not have.
  const schedule::Schedule& schedule_of(int micro_batches) const;

  // Collective over all ranks of the mesh; see above. Call it in place of forward and backward. `parallel` is the
  // wrapper that data_parallel() made with this pipeline. Throws InvalidArgument if a stage passes more than 1024
  // tensors to another one, or a tensor of more than 8 dimensions; if a unit does not return the tensor of a skip
  // connection; and if `loss` does not run the units of the last stage, or gives one something else than what units
  // before it returned.
  const PipelineReport& step(DataParallelBase& parallel, int micro_batches, const PipelineStep& what) const;

  // Collective. Runs the forwards only, without gradients. PipelineStep::loss may return an undefined tensor: its
  // result is not used. Any number of micro-batches is possible. Micro-batches go through all stages in order, so with
  // several stages on a rank the ranks wait for each other.
  void evaluate(DataParallelBase& parallel, int micro_batches, const PipelineStep& what) const;

  // The last step of this rank.
  const PipelineReport& last() const;
  // Collective over the ranks along the axis. The last steps of all of them, as replay() would predict them, with times
  // in seconds since the first rank began. The clocks of several machines may differ. Transfers are not measured.
  schedule::Replay gather_last() const;

 private:
  std::shared_ptr<State> state_;
};

// The seconds that forward and backward of each unit take, for PipelineOptions::costs: the mean over the ranks of
// `ranks`, so all ranks get the same. `input` is the input of the first unit, and `skips` are the model's. Gradients
// that the model has are dropped; buffers and random generators have the same state afterwards. Collective: every rank
// runs all units, so it must hold the whole model.
std::vector<double> measure_units(const std::vector<nn::Unit>& units, const nn::Carry& input, const Communicator& ranks,
                                  const std::vector<nn::Skip>& skips = {});

// Collective over the ranks of the mesh, which must have the same model and options. Frees the memory of the parameters
// and buffers of other stages. The model must outlive the pipeline. If the model is to be divided by parallelize()
// (tensor_parallel.h) too, call parallelize() first. Throws InvalidArgument on every rank if models or options differ;
// if the mesh has no such axis; if there are fewer units than stages; if a parameter belongs to no unit; if a unit has
// more than one place in the model; if a skip connection names no unit, or leads to an earlier unit; if a schedule of
// the user's own does not have the skip connections of the model.
Pipeline make_pipeline(torch::nn::Module& model, const mesh::Mesh& mesh, PipelineOptions options);

template <class Model>
Pipeline pipeline(Model& model, const mesh::Mesh& mesh, PipelineOptions options = {}) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Model>) {
    if constexpr (requires { model.units(); }) {
      if (options.units.empty()) options.units = model.units();
    }
    if constexpr (requires { options.skips = model.skips(); }) {
      if (options.skips.empty()) options.skips = model.skips();
    }
    return make_pipeline(model, mesh, std::move(options));
  } else {
    return pipeline(*model, mesh, std::move(options));
  }
}

}  // namespace reigen::parallel

namespace reigen {
using parallel::pipeline;
using parallel::Pipeline;
}  // namespace reigen
