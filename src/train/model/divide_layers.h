// The mesh of a run whose ranks divide the layers of its model (mesh.tp), and the division itself.
// Thread rule: used only by the thread of its rank.
#pragma once

#include "reigen/parallel/tensor_parallel.h"
#include "train/run/run.h"

namespace reigen::train {

// If mesh.tp is above 1, makes run.mesh with the axes dp_replicate, dp_shard and tp, and sets run.data to the ranks
// along the first two. Collective. Throws InvalidArgument on every rank if mesh.tp does not divide the number of ranks.
void open_mesh(Run& run);

// Divides the model as the task's plan says. Collective. Throws InvalidArgument on every rank if the task has no plan,
// or as parallel::parallelize() does.
parallel::TensorParallel divide_layers(Run& run);

}  // namespace reigen::train
