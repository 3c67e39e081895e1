// Collectives on blocks of different sizes. If the number of elements of all blocks together fits into an int, they use
// MPI's own operations. Otherwise they use messages (MPI_Isend, MPI_Irecv), or one reduction per block.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/call/mismatch_reports.h"
#include "comm/mpi/block.h"
#include "comm/mpi/collectives.h"
#include "comm/mpi/library.h"
#include "comm/mpi/reduction.h"

namespace reigen::comm::mpi {

namespace {

constexpr int kTag = 0;

// In all_to_all_v: what a rank tells another rank about the data between the two. All values are numbers of elements.
struct Said {
  std::uint64_t gives;
  std::uint64_t takes;
  // The number of elements of the rank's whole input or of its whole output, whichever is larger. If this number is too
  // large for MPI's own operation on one rank, all ranks must use messages.
  std::uint64_t widest;
};
constexpr int kSaidWords = sizeof(Said) / sizeof(std::uint64_t);

std::vector<int> ints_of(const std::vector<std::size_t>& counts) {
  std::vector<int> ints;
  for (const std::size_t count : counts) ints.push_back(static_cast<int>(count));
  return ints;
}

std::vector<int> places_of(const std::vector<std::size_t>& counts) {
  std::vector<int> places(counts.size());
  const std::vector<int> ints = ints_of(counts);
  std::exclusive_scan(ints.begin(), ints.end(), places.begin(), 0);
  return places;
}

}  // namespace

int* Collective::keep(const std::vector<int>& numbers) {
  const auto& memory = kept_.emplace_back(group_.arena->take(numbers.size() * sizeof(int)));
  std::memcpy(memory.get(), numbers.data(), numbers.size() * sizeof(int));
  return static_cast<int*>(memory.get());
}

void Collective::exchange_counts() {
  const auto p = static_cast<std::size_t>(group_.size);
  exchanged_ = group_.arena->take(2 * p * sizeof(Said));
  auto* const said = static_cast<Said*>(exchanged_.get());
  const std::size_t widest = std::max(extent_.input, extent_.output);
  for (std::size_t q = 0; q < p; ++q) said[q] = {call_.counts[q], call_.arrives[q], widest};
  const auto guard = Library::get().guard();
  check(MPI_Ialltoall(said, kSaidWords, MPI_UINT64_T, said + p, kSaidWords, MPI_UINT64_T, group_.data, request()),
        "MPI_Ialltoall");
}

void Collective::compare_counts() {
  const auto p = static_cast<std::size_t>(group_.size);
  const auto* const own = static_cast<const Said*>(exchanged_.get());
  const Said* const heard = own + p;
  for (std::size_t q = 0; q < p; ++q) {
    widest_ = std::max<std::size_t>(widest_, heard[q].widest);
    const bool theirs = heard[q].gives != own[q].takes;
    if (!theirs && heard[q].takes == own[q].gives) continue;
    Library::get().finalize_in_time();  // ranks that see no difference wait for this rank inside MPI
    const int rank = static_cast<int>(q);
    throw_exchange_differs(group_.control->group(), sequence_,
                           theirs ? Exchange{rank, heard[q].gives, group_.rank, own[q].takes}
                                  : Exchange{group_.rank, own[q].gives, rank, heard[q].takes});
  }
}

void Collective::move_uneven() {
  if (call_.kind != OperationKind::kAllToAllV) widest_ = begin_of(call_.counts, group_.size);
  const auto r = static_cast<std::size_t>(group_.rank);
  const std::size_t element = size_of(call_.type);
  const bool in_place = meet({input_, extent_.input * element}, {output_, extent_.output * element});
  if (widest_ > group_.most) return move_by_messages(in_place);
  const MPI_Datatype type = element_type(call_.type);
  const int root = call_.root;
  const int own = static_cast<int>(call_.counts[r]);
  const int* const counts = keep(ints_of(call_.counts));
  const int* const places = keep(places_of(call_.counts));
  const void* const input = in_place ? MPI_IN_PLACE : input_;
  switch (kind_) {
    case OperationKind::kReduceScatter:
      return check(
          MPI_Ireduce_scatter(input_, output_, counts, type, operation(call_.op, call_.type), group_.data, request()),
          "MPI_Ireduce_scatter");
    case OperationKind::kAllGather:
      return check(MPI_Iallgatherv(MPI_IN_PLACE, own, type, output_, counts, places, type, group_.data, request()),
                   "MPI_Iallgatherv");
    case OperationKind::kGather:
      return check(MPI_Igatherv(input, own, type, output_, counts, places, type, root, group_.data, request()),
                   "MPI_Igatherv");
    case OperationKind::kScatter: {
      void* const output = in_place ? MPI_IN_PLACE : output_;
      return check(MPI_Iscatterv(input_, counts, places, type, output, own, type, root, group_.data, request()),
                   "MPI_Iscatterv");
    }
    default: break;
  }
  const int* const arrives = keep(ints_of(call_.arrives));
  const int* const arrive_at = keep(places_of(call_.arrives));
  check(MPI_Ialltoallv(input_, counts, places, type, output_, arrives, arrive_at, type, group_.data, request()),
        "MPI_Ialltoallv");
}

// Every rank begins its messages in the order of the calls, so the messages of all calls can use one MPI tag.
void Collective::move_by_messages(bool in_place) {
  if (kind_ == OperationKind::kReduceScatter) {
    for (int q = 0; q < group_.size; ++q) {
      const std::size_t at = begin_of(call_.counts, q) * size_of(call_.type);
      reduce_block(input_ + at, output_, call_.counts[static_cast<std::size_t>(q)], q, false);
    }
    return;
  }
  const std::size_t element = size_of(call_.type);
  const bool exchanges = kind_ == OperationKind::kAllToAll;
  const bool in_blocks = exchanges || kind_ == OperationKind::kScatter;
  const std::vector<std::size_t>& arrives = exchanges ? call_.arrives : call_.counts;
  // The number of elements that rank `from` gives to rank `to`. This rank is `from` or `to`.
  const auto passing = [&](int from, int to) {
    if (kind_ == OperationKind::kGather && to != call_.root) return std::size_t{0};
    if (kind_ == OperationKind::kScatter && from != call_.root) return std::size_t{0};
    if (exchanges && from != group_.rank) return call_.arrives[static_cast<std::size_t>(from)];
    return call_.counts[static_cast<std::size_t>(in_blocks ? to : from)];
  };
  for (int i = 0; i < group_.size; ++i) {
    const int q = (group_.rank + i) % group_.size;
    const std::size_t given = passing(group_.rank, q) * element;
    const std::size_t taken = passing(q, group_.rank) * element;
    const std::byte* const from = input_ + (in_blocks ? begin_of(call_.counts, q) * element : 0);
    std::byte* const into = output_ + (kind_ == OperationKind::kScatter ? 0 : begin_of(arrives, q) * element);
    if (q == group_.rank) {
      if (given > 0 && !in_place) std::memcpy(into, from, given);
      continue;
    }
    if (taken > 0) {
      const Block block(taken);
      check(MPI_Irecv(into, block.count(), block.type(), q, kTag, group_.data, request()), "MPI_Irecv");
    }
    if (given > 0) {
      const Block block(given);
      check(MPI_Isend(from, block.count(), block.type(), q, kTag, group_.data, request()), "MPI_Isend");
    }
  }
}

}  // namespace reigen::comm::mpi
