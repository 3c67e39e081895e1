// The collectives of the MPI backend. Each runs in two steps, and neither blocks.
//
// Compare: an MPI_Iallreduce of 16 bytes, on a communicator of its own, finds the smallest and the largest hash of the
//   call over all ranks. If the two differ, the ranks made different calls. MPI itself does not notice this: it would
//   hang, or truncate or mix up the data.
// Move: MPI's own nonblocking collective. It begins when every earlier call of this rank that uses the same memory is
//   complete. Memory that is not from allocate() is copied to the arena and back: see arena.h. An input that has a
//   factor is always copied, and the copy is multiplied by the factor.
// A barrier is the comparison alone. all_to_all_v has a third step between these two steps: each pair of ranks
// exchanges the counts of the data between them (MPI_Ialltoall), because the hash of the call does not contain these
// counts.
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
  const Call& call_;
  const std::uint64_t sequence_;
  const OperationKind kind_;  // the operation with blocks of one size: kAllGather for a kAllGatherV
  const Extent extent_;
  Phase phase_ = Phase::kFirst;
  std::array<std::uint64_t, 2> own_hash_{};
  // MPI writes here while the comparison runs. Deliberately leaked if the group ends before the comparison is complete.
  std::unique_ptr<std::array<std::uint64_t, 2>> least_hash_ = std::make_unique<std::array<std::uint64_t, 2>>();
  std::vector<MPI_Request> requests_;
  const std::byte* input_ = nullptr;  // MPI reads input_ and writes output_: the call's memory or a staging buffer
  std::byte* output_ = nullptr;
  std::shared_ptr<void> staged_input_;
  std::shared_ptr<void> staged_output_;
  std::vector<std::shared_ptr<void>> kept_;  // lists of counts and offsets, which MPI reads until the call is complete
  std::shared_ptr<void> exchanged_;          // all_to_all_v: what this rank sent to every rank, then what it received
  std::size_t widest_ = 0;                   // for blocks of different sizes: the most elements that a rank uses
};

}  // namespace reigen::comm::mpi
