// Ranks that mpirun started, talking through the MPI of the machine.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::mpi {

// Throws BackendError (69) when this build has no MPI or the processes were not started by mpirun.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::mpi
