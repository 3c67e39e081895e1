// Whether this process is a task of a step that Slurm's srun started.
#pragma once

namespace reigen::base {

// The number of the step decides. Batch scripts and interactive shells have the job's variables too, with
// SLURM_PROCID=0 and SLURM_LOCALID=0, but each is a single process. Their step has no number, or one of the reserved
// numbers (4294967290 and up). A number that cannot be parsed counts as no number.
bool in_slurm_step();

}  // namespace reigen::base
