// The state that the operations of a group share. Used by the driver thread only.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/control/store_control.h"
#include "comm/mpi/arena.h"
#include "comm/mpi/block.h"

namespace reigen::comm::mpi {

struct Span {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

// Whether the two spans have a byte in common.
bool meet(const Span& a, const Span& b);

struct Group {
  int rank = 0;
  int size = 1;
  MPI_Comm data = MPI_COMM_NULL;     // for the data of the collectives
  MPI_Comm compare = MPI_COMM_NULL;  // for the hashes of the calls (collectives.h)
  std::shared_ptr<Arena> arena = {};
  std::unique_ptr<control::StoreControl> control = {};
  std::uint64_t completed = 0;  // number of operations that are complete on this rank
  // A collective whose data are in flight, and the memory that it uses.
  struct Moving {
    std::uint64_t sequence;
    Span input;
    Span output;
  };
  std::vector<Moving> moving = {};
  // A call with blocks of different sizes uses messages if all blocks together have more elements than this
  // (uneven.cc).
  std::size_t most = kMostAtOnce;
};

}  // namespace reigen::comm::mpi
