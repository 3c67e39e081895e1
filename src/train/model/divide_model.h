// The mesh of a run whose ranks divide its model (mesh.tp and mesh.pp), and the division itself.
// Thread rule: used only by the thread of its rank.
#pragma once

#include "reigen/parallel/context_parallel.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/parallel/tensor_parallel.h"
#include "train/run/run.h"

namespace reigen::train {

// If mesh.tp, mesh.cp or mesh.pp is above 1, makes run.mesh with the axes pp, dp_replicate, dp_shard, cp and tp, and
// sets run.data to the ranks along the axes of data parallelism. Collective. Throws InvalidArgument on every rank if
// the product of the three does not divide the number of ranks.
void open_mesh(Run& run);

// Divides the model as the task's plan says. Collective. Throws InvalidArgument on every rank if the task has no plan,
// or as parallel::parallelize() does.
parallel::TensorParallel divide_layers(Run& run);

// The ranks that divide each sequence (mesh.cp). Throws InvalidArgument on every rank if the task cannot.
parallel::ContextParallel divide_sequences(Run& run);

// Divides the model into the stages of a pipeline, as mesh.schedule and mesh.cut say. Collective. `samples`: of a rank
// in a whole step. If mesh.schedule is a file, its path becomes absolute, and `micro_batches_of_file` is set. Throws
// InvalidArgument on every rank if the task's model has no units, for a schedule that is unknown, that its file does
// not describe, or that has another number of micro-batches than a step, or as parallel::pipeline() does.
parallel::Pipeline divide_stages(Run& run, std::int64_t samples, int& micro_batches_of_file);

// Whether mesh.schedule is the path of a file.
bool is_file(const std::string& schedule);

// What the run's pipeline did in its last step: the times of all ranks, and what replay() predicts from the mean times
// of the stages. Collective over the ranks along axis pp.
struct PipelineTimes {
  schedule::Replay measured = {};
  schedule::Replay predicted = {};
};
PipelineTimes times_of(const parallel::Pipeline& pipeline, int micro_batches);

}  // namespace reigen::train
