// Whether this process is a task of a step that Slurm's srun started.
#pragma once

namespace reigen::base {

// The result depends on SLURM_STEP_ID, the number of the step. Batch scripts and interactive shells have the job's
// variables too, with SLURM_PROCID=0 and SLURM_LOCALID=0, but each is a single process. For them SLURM_STEP_ID is not
// set, or is one of the reserved numbers (4294967290 and up). A value that cannot be parsed counts as not set.
bool in_slurm_step();

}  // namespace reigen::base
