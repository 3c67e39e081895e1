#include "comm/nccl/nccl_backend.h"

#include "reigen/base/error.h"

namespace reigen::comm::nccl {

std::unique_ptr<Backend> make_backend(const GroupOptions&) {
  throw BackendError(
      Report{.what = "this build has no NCCL",
             .got = "backend \"nccl\"",
             .expected = "a build that found NCCL and the CUDA runtime",
             .fix = "install both and configure again with -DREIGEN_NCCL=ON -DNCCL_ROOT=... -DCUDA_ROOT=..."});
}

}  // namespace reigen::comm::nccl
