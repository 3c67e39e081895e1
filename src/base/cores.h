// How many processors there are for the ranks of a machine.
#pragma once

namespace reigen::base {

// True when each of `threads` threads of each of this machine's `ranks` ranks has a processor of its own. A rank that
// is bound to some processors (taskset, Slurm, mpirun) has those and no more; that others are bound to the same is not
// seen.
bool have_cores(int ranks, int threads = 1);

}  // namespace reigen::base
