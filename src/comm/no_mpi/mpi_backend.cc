#include "comm/mpi/mpi_backend.h"

#include "reigen/base/error.h"

namespace reigen::comm::mpi {

std::unique_ptr<Backend> make_backend(const GroupOptions&) {
  throw BackendError(
      Report{.what = "this build has no MPI",
             .got = "backend \"mpi\"",
             .expected = "a build that found MPI",
             .fix = "install libopenmpi-dev (or libmpich-dev) and configure again with -DREIGEN_MPI=ON"});
}

}  // namespace reigen::comm::mpi
