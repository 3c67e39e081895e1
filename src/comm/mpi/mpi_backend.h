// The backend for ranks that mpirun started: they communicate through the machine's MPI library.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::mpi {

// Throws BackendError (exit code 69) when this build has no MPI or the processes were not started by mpirun.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::mpi
