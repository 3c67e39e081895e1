#include "train/program/launcher_prefix.h"

#include <fmt/format.h>

#include <optional>

#include "base/environment.h"

namespace reigen::train {

namespace {

std::string srun(int ranks) {
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
    const auto nodes = base::get_environment(name);
    if (nodes) return fmt::format("srun -N {} -n {} ", *nodes, ranks);
  }
  return fmt::format("srun -n {} ", ranks);
}

}  // namespace

std::string launcher_prefix(const launch::Environment& environment) {
  const int ranks = environment.world_size;
  if (environment.source == "Slurm") return srun(ranks);
  if (environment.source == "Open MPI" || environment.source == "MPICH") return fmt::format("mpirun -n {} ", ranks);
  if (environment.source != "torchrun" || ranks == 1) return "";
  if (!base::get_environment("TORCHELASTIC_RUN_ID")) return "(with the same variables on every rank) ";
  if (!environment.one_host) return "(with the same torchrun on every node) ";
  return fmt::format("torchrun --nproc-per-node {} --no-python ", ranks);
}

}  // namespace reigen::train
