// The operations of the MPI backend: two steps, both without waiting.
//
// Compare: the smallest and the largest hash of the call over all ranks (MPI_Iallreduce of 16 bytes, on a communicator
//   of its own). MPI does not know that ranks called different things: it would hang, cut or mix up data.
// Move: MPI's own nonblocking collective, once every earlier call of this rank that touches the same memory is
// complete.
//   Memory that is not from allocate() is copied to the arena and back: see arena.h.
// A barrier is the comparison alone.
#pragma once

#include <mpi.h>

#include <array>
#include <memory>
#include <vector>

#include "comm/backend.h"
#include "comm/control/store_control.h"
#include "comm/mpi/arena.h"

namespace reigen::comm::mpi {

struct Span {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

// What the operations of a group share. Used by the driving thread only.
struct Group {
  int rank = 0;
  int size = 1;
  MPI_Comm data = MPI_COMM_NULL;
  MPI_Comm compare = MPI_COMM_NULL;
  std::shared_ptr<Arena> arena = {};
  std::unique_ptr<control::StoreControl> control = {};
  std::uint64_t completed = 0;  // operations complete on this rank
  struct Moving {
    std::uint64_t sequence;
    Span input;
    Span output;
  };
  std::vector<Moving> moving = {};
};

class Collective : public Operation {
 public:
  Collective(Group& group, const Call& call, std::uint64_t sequence);
  ~Collective() override;

  bool try_post() override;
  Step advance() override;

  const Call& call() const { return call_; }
  std::uint64_t sequence() const { return sequence_; }

 private:
  enum class Phase { kFirst, kComparing, kWaiting, kMoving, kMoved };

  bool compared();
  bool may_move() const;
  void stage();
  void move();
  void move_reduction();
  void reduce_block(const std::byte* input, std::byte* output, int root, bool in_place);
  void finish();
  bool all_done();
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  Span input_span() const;
  Span output_span() const;

  Group& group_;
  const Call call_;
  const std::uint64_t sequence_;
  const Extent extent_;
  Phase phase_ = Phase::kFirst;
  std::array<std::uint64_t, 2> own_hash_{};
  // Of MPI while the comparison runs; lost deliberately when the group ends before.
  std::unique_ptr<std::array<std::uint64_t, 2>> least_hash_ = std::make_unique<std::array<std::uint64_t, 2>>();
  std::vector<MPI_Request> requests_;
  const std::byte* input_ = nullptr;  // where MPI reads and writes
  std::byte* output_ = nullptr;
  std::shared_ptr<void> staged_input_;
  std::shared_ptr<void> staged_output_;
};

}  // namespace reigen::comm::mpi
