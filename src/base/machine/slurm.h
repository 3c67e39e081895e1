// Whether this process is a task that Slurm's srun started.
#pragma once

namespace reigen::base {

// Batch scripts and interactive shells have the job's variables too, SLURM_PROCID=0 and SLURM_LOCALID=0 among them, but
// are one process; their step has no number or one of the reserved ones (4294967290 and up). A number that cannot be
// read is none.
bool in_slurm_step();

}  // namespace reigen::base
