#include "comm/mpi/collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/call/signature.h"
#include "comm/mpi/block.h"
#include "comm/mpi/library.h"
#include "comm/mpi/reduction.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::mpi {

bool meet(const Span& a, const Span& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

Collective::Collective(Group& group, const Call& call, std::uint64_t sequence)
    : group_(group),
      call_(call),
      sequence_(sequence),
      kind_(even_kind(call.kind)),
      extent_(extent_of(call, group.rank, group.size)) {
  group_.control->called(call_, sequence_);
  const std::uint64_t hash = hash_of(signature_of(call_), sequence_);
  own_hash_ = {hash, ~hash};  // MPI_MIN finds the smallest hash and, as the smallest complement, the largest hash
}

// Requests remain here only if the group has ended. MPI cannot cancel them, so their memory is never handed out again.
Collective::~Collective() {
  if (requests_.empty()) return;
  if (phase_ == Phase::kComparing) least_hash_.release();
  Library::get().finalize_in_time();
}

void Collective::check_peers(std::chrono::nanoseconds waited) const { group_.control->check(call_, sequence_, waited); }

// The answer must be the same on every rank. In all_to_all_v, a rank that moves nothing does not know whether other
// ranks move data, so the answer is false.
bool Collective::moves_nothing() const {
  if (kind_ == OperationKind::kBarrier) return true;
  if (call_.kind == OperationKind::kAllToAllV) return false;
  return call_.count + begin_of(call_.counts, static_cast<int>(call_.counts.size())) == 0;
}

Span Collective::input_span() const {
  return {static_cast<const std::byte*>(call_.input), extent_.input * size_of(call_.type)};
}

Span Collective::output_span() const {
  return {static_cast<const std::byte*>(call_.output), extent_.output * size_of(call_.type)};
}

bool Collective::try_post() {
  const auto guard = Library::get().guard();
  *least_hash_ = own_hash_;
  check(MPI_Iallreduce(MPI_IN_PLACE, least_hash_->data(), 2, MPI_UINT64_T, MPI_MIN, group_.compare, request()),
        "MPI_Iallreduce");
  phase_ = Phase::kComparing;
  return true;
}

// The calls of all ranks are equal if no rank has a smaller hash than this rank, and no rank has a smaller complement.
bool Collective::compared() {
  if (!requests_.empty() && !all_done(requests_)) return false;
  if (*least_hash_ == own_hash_) return true;
  group_.control->look_for_mismatch();  // one of the next check_peers() then throws the error, naming both calls
  return false;
}

bool Collective::may_move() const {
  return std::none_of(group_.moving.begin(), group_.moving.end(), [&](const Group::Moving& earlier) {
    return meet(earlier.output, input_span()) || meet(earlier.output, output_span()) ||
           meet(earlier.input, output_span());
  });
}

Step Collective::advance() {
  if (phase_ == Phase::kComparing) {
    if (!compared()) return Step::kBlocked;
    phase_ = moves_nothing() ? Phase::kMoved : Phase::kWaiting;
    return Step::kMoved;
  }
  if (phase_ == Phase::kWaiting) {
    if (!may_move()) return Step::kBlocked;
    group_.moving.push_back({sequence_, input_span(), output_span()});
    if (call_.kind == OperationKind::kAllToAllV) exchange_counts();
    phase_ = Phase::kExchanging;
  }
  if (phase_ == Phase::kExchanging) {
    // Later calls of this rank wait meanwhile, because MPI requires that all ranks begin its collectives in the same
    // order.
    if (!requests_.empty() && !all_done(requests_)) return Step::kBlocked;
    if (call_.kind == OperationKind::kAllToAllV) compare_counts();
    stage();
    move();
    phase_ = Phase::kMoving;
    return Step::kMoved;
  }
  if (phase_ == Phase::kMoving && all_done(requests_)) {
    finish();
    std::erase_if(group_.moving, [&](const Group::Moving& one) { return one.sequence == sequence_; });
    phase_ = Phase::kMoved;
  }
  // Operations complete in the order of the calls, even if MPI has finished a later operation first.
  if (phase_ != Phase::kMoved || group_.completed != sequence_) return Step::kPassedOn;
  group_.completed += 1;
  return Step::kDone;
}

void Collective::stage() {
  input_ = static_cast<const std::byte*>(call_.input);
  output_ = static_cast<std::byte*>(call_.output);
  const Span input = input_span();
  const Span output = output_span();
  const bool in_place = meet(input, output);
  // With MPI_IN_PLACE, a reduce_scatter writes the result to the beginning of the input. In Reigen the result of a call
  // in place belongs in this rank's block of the input.
  const bool apart = kind_ == OperationKind::kReduceScatter && in_place;
  if (output.bytes > 0 && (apart || !group_.arena->owns(output.begin, output.bytes))) {
    staged_output_ = group_.arena->take(output.bytes);
    output_ = static_cast<std::byte*>(staged_output_.get());
  }
  // MPI requires that either all ranks pass MPI_IN_PLACE or none does. Only a root may choose alone. But a rank cannot
  // know whether the calls of the other ranks are in place. So every all_gather passes MPI_IN_PLACE, and no all_reduce
  // does.
  if (kind_ == OperationKind::kAllGather) return gather_in_place(input);
  const bool scaled = call_.factor != 1;
  const bool sums_in_place = kind_ == OperationKind::kAllReduce && in_place;
  if (input.bytes == 0 || (!scaled && !sums_in_place && group_.arena->owns(input.begin, input.bytes))) return;
  staged_input_ = group_.arena->take(input.bytes);
  std::byte* own = static_cast<std::byte*>(staged_input_.get());
  input_ = own;
  if (!scaled) {
    std::memcpy(own, input.begin, input.bytes);
    return;
  }
  reduce::run({.inputs = &input.begin,
               .outputs = &own,
               .input_count = 1,
               .output_count = 1,
               .count = extent_.input,
               .type = call_.type,
               .op = call_.op,
               .factors = &call_.factor});
}

void Collective::gather_in_place(const Span& input) {
  const std::size_t begin =
      is_uneven(call_.kind) ? begin_of(call_.counts, group_.rank) : static_cast<std::size_t>(group_.rank) * call_.count;
  std::byte* own = output_ + begin * size_of(call_.type);
  if (own != input_ && input.bytes > 0) std::memcpy(own, input_, input.bytes);
  input_ = own;
}

void Collective::move() {
  const auto guard = Library::get().guard();
  if (is_uneven(call_.kind)) return move_uneven();
  const Block block(call_.bytes());
  const int n = block.count();
  const MPI_Datatype type = block.type();
  const int root = call_.root;
  // If the input or the output has been replaced by a staging buffer, the call is no longer in place for MPI.
  const bool in_place =
      meet({input_, extent_.input * size_of(call_.type)}, {output_, extent_.output * size_of(call_.type)});
  const void* input = in_place ? MPI_IN_PLACE : input_;
  switch (call_.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduce:
    case OperationKind::kReduceScatter: return move_reduction();
    case OperationKind::kBroadcast: {
      void* data = group_.rank == root ? const_cast<std::byte*>(input_) : output_;
      return check(MPI_Ibcast(data, n, type, root, group_.data, request()), "MPI_Ibcast");
    }
    case OperationKind::kAllGather:
      return check(MPI_Iallgather(MPI_IN_PLACE, n, type, output_, n, type, group_.data, request()), "MPI_Iallgather");
    case OperationKind::kGather:
      return check(MPI_Igather(input, n, type, output_, n, type, root, group_.data, request()), "MPI_Igather");
    case OperationKind::kScatter: {
      void* output = in_place ? MPI_IN_PLACE : output_;
      return check(MPI_Iscatter(input_, n, type, output, n, type, root, group_.data, request()), "MPI_Iscatter");
    }
    case OperationKind::kAllToAll:
      return check(MPI_Ialltoall(input_, n, type, output_, n, type, group_.data, request()), "MPI_Ialltoall");
    default: return;  // a barrier moves nothing
  }
}

// If the count does not fit into an int, the reduction runs piece by piece. All ranks cut the same pieces.
void Collective::move_reduction() {
  const MPI_Datatype type = element_type(call_.type);
  const MPI_Op op = operation(call_.op, call_.type);
  const std::size_t element = size_of(call_.type);
  if (call_.kind == OperationKind::kReduce) {
    return reduce_block(input_, output_, call_.count, call_.root, input_ == output_);
  }
  if (call_.kind == OperationKind::kReduceScatter) {
    if (call_.count <= kMostAtOnce) {
      return check(
          MPI_Ireduce_scatter_block(input_, output_, static_cast<int>(call_.count), type, op, group_.data, request()),
          "MPI_Ireduce_scatter_block");
    }
    for (int q = 0; q < group_.size; ++q) {
      reduce_block(input_ + static_cast<std::size_t>(q) * call_.bytes(), output_, call_.count, q, false);
    }
    return;
  }
  for (const Piece& piece : pieces_of(call_.count)) {
    const std::size_t at = piece.begin * element;
    check(MPI_Iallreduce(input_ + at, output_ + at, piece.count, type, op, group_.data, request()), "MPI_Iallreduce");
  }
}

void Collective::reduce_block(const std::byte* input, std::byte* output, std::size_t count, int root, bool in_place) {
  const bool is_root = group_.rank == root;
  for (const Piece& piece : pieces_of(count)) {
    const std::size_t at = piece.begin * size_of(call_.type);
    const void* from = is_root && in_place ? MPI_IN_PLACE : input + at;
    void* to = is_root ? output + at : nullptr;
    check(MPI_Ireduce(from, to, piece.count, element_type(call_.type), operation(call_.op, call_.type), root,
                      group_.data, request()),
          "MPI_Ireduce");
  }
}

void Collective::finish() {
  if (extent_.output == 0) return;
  if (reduces(call_.kind) && call_.op == ReduceOp::kAvg) {
    divide(output_, extent_.output, call_.type, group_.size);
  } else if (reduces(call_.kind) && group_.size == 1) {  // with one rank MPI only copies, but bools must become 0 or 1
    const std::byte* input = output_;
    reduce::run({.inputs = &input,
                 .outputs = &output_,
                 .input_count = 1,
                 .output_count = 1,
                 .count = extent_.output,
                 .type = call_.type,
                 .op = call_.op});
  }
  if (!staged_output_) return;
  std::memcpy(call_.output, output_, output_span().bytes);
}

}  // namespace reigen::comm::mpi
