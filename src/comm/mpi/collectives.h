// The operations of the MPI backend: two steps, both without waiting.
//
// Compare: the smallest and the largest hash of the call over all ranks (MPI_Iallreduce of 16 bytes, on a communicator
//   of its own). MPI does not know that ranks called different things: it would hang, cut or mix up data.
// Move: MPI's own nonblocking collective, once every earlier call of this rank that touches the same memory is
// complete.
//   Memory that is not from allocate() is copied to the arena and back: see arena.h. A factor is a copy times it.
// A barrier is the comparison alone. all_to_all_v has a step between: what each two ranks say of what passes between
// them (MPI_Ialltoall), for its counts are no part of what all compare.
#pragma once

#include <mpi.h>

#include <array>
#include <memory>
#include <vector>

#include "comm/call/checked_operation.h"
#include "comm/mpi/group.h"

namespace reigen::comm::mpi {

class Collective : public CheckedOperation {
 public:
  Collective(Group& group, const Call& call, std::uint64_t sequence);
  ~Collective() override;

  bool try_post() override;
  Step advance() override;

  void check_peers(std::chrono::nanoseconds waited) const override;

 private:
  enum class Phase { kFirst, kComparing, kWaiting, kExchanging, kMoving, kMoved };

  bool compared();
  bool may_move() const;
  void stage();
  void gather_in_place(const Span& input);
  void move();
  void move_reduction();
  void reduce_block(const std::byte* input, std::byte* output, std::size_t count, int root, bool in_place);
  void exchange_counts();
  void compare_counts();
  void move_uneven();
  void move_by_messages(bool in_place);
  void finish();
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  bool moves_nothing() const;
  int* keep(const std::vector<int>& numbers);
  Span input_span() const;
  Span output_span() const;

  Group& group_;
  const Call call_;
  const std::uint64_t sequence_;
  const OperationKind kind_;  // of blocks of one size
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
  std::vector<std::shared_ptr<void>> kept_;  // lists that MPI reads until it is done
  std::shared_ptr<void> exchanged_;          // all_to_all_v: what this rank said to each, then what each said
  std::size_t widest_ = 0;                   // uneven: the most elements that any rank reads or writes
};

}  // namespace reigen::comm::mpi
