#include "comm/nccl/collectives.h"

#include <array>
#include <optional>

#include "base/check.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::nccl {

namespace {

std::optional<ncclDataType_t> element_type(DataType type) {
  switch (type) {
    case DataType::kInt8: return ncclInt8;
    case DataType::kUint8: return ncclUint8;
    case DataType::kInt32: return ncclInt32;
    case DataType::kInt64: return ncclInt64;
    case DataType::kFloat16: return ncclFloat16;
    case DataType::kBfloat16: return ncclBfloat16;
    case DataType::kFloat32: return ncclFloat32;
    case DataType::kFloat64: return ncclFloat64;
    case DataType::kInt16:
    case DataType::kBool: break;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> operation(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ncclSum;
    case ReduceOp::kAvg: return ncclAvg;
    case ReduceOp::kProd: return ncclProd;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor: break;
  }
  return std::nullopt;
}

// The factor as an element of `type`, the form that NCCL takes.
std::array<std::byte, sizeof(double)> in_type(double factor, DataType type) {
  constexpr std::uint16_t kHalf = 0x3c00;
  constexpr std::uint16_t kBfloat = 0x3f80;
  constexpr float kSingle = 1;
  constexpr double kDouble = 1;
  const void* one = type == DataType::kFloat16    ? static_cast<const void*>(&kHalf)
                    : type == DataType::kBfloat16 ? static_cast<const void*>(&kBfloat)
                    : type == DataType::kFloat32  ? static_cast<const void*>(&kSingle)
                                                  : static_cast<const void*>(&kDouble);
  std::array<std::byte, sizeof(double)> scalar{};
  const auto* input = static_cast<const std::byte*>(one);
  std::byte* output = scalar.data();
  reduce::run({.inputs = &input,
               .outputs = &output,
               .input_count = 1,
               .output_count = 1,
               .count = 1,
               .type = type,
               .factors = &factor});
  return scalar;
}

}  // namespace

void check_reduction(const Call& call) {
  if (reduces(call.kind) && (!element_type(call.type) || !operation(call.op))) {
    throw InvalidArgument(Report{
        .what = fmt::format("[{}] NCCL has no {} of {}", name_of(call.kind), name_of(call.op), name_of(call.type)),
        .got = {},
        .expected = "sum, avg, prod, min or max of floats, int8, uint8, int32 or int64",
        .fix = "use a type that NCCL knows (bool: max of uint8), or another backend"});
  }
}

Collective::Collective(Group& group, const Call& call, std::uint64_t sequence)
    : group_(group), call_(call), sequence_(sequence), extent_(extent_of(call, group.rank, group.size)) {
  const device::OnDevice on(group_.device);
  take_scratch();
  ready_.record(device::handle_of(call_.after));
  group_.control->called(call_, sequence_);
}

// A non-blocking communicator accepts the next call only when the previous call is on the stream.
Step Collective::advance() {
  const device::OnDevice on(group_.device);
  switch (phase_) {
    case Phase::kFirst:
      if (!settled() || !can_scale()) return Step::kBlocked;
      ready_.precede(group_.stream->get());
      input_ = static_cast<const std::byte*>(call_.input);
      output_ = static_cast<std::byte*>(call_.output);
      if (has_factor()) {
        scale();
        phase_ = Phase::kScaling;
        return Step::kMoved;
      }
      enqueue();
      phase_ = Phase::kEnqueuing;
      return Step::kMoved;
    case Phase::kScaling:
      if (!can_scale()) return Step::kBlocked;
      enqueue();
      phase_ = Phase::kEnqueuing;
      return Step::kMoved;
    case Phase::kEnqueuing:
      if (!settled()) return Step::kBlocked;
      done_.record(group_.stream->get());
      phase_ = Phase::kRunning;
      return Step::kMoved;
    case Phase::kRunning:
      settled();  // throws if the network or another rank has failed meanwhile
      if (!done_.is_done(name_of(call_.kind))) return Step::kPassedOn;
      phase_ = Phase::kDone;
      break;
    case Phase::kDone: break;
  }
  return Step::kDone;
}

bool Collective::precede(const Stream& stream) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kDone) return false;
  const device::OnDevice on(group_.device);  // `stream` may be the default stream, which is that of the current device
  done_.precede(device::handle_of(stream));
  return true;
}

// Whether the output can hold the scaled input. It can if this rank gets the whole result, because the result has the
// length of the input.
bool Collective::may_scale_into_output() const {
  return call_.kind == OperationKind::kAllReduce || (call_.kind == OperationKind::kReduce && group_.rank == call_.root);
}

// Takes scratch memory for the input times its factor. Calls run one after the other, so all can use the same memory. A
// call that needs more memory allocates a larger block. Earlier calls keep the old block alive.
void Collective::take_scratch() {
  if (!has_factor() || may_scale_into_output()) return;
  const std::size_t bytes = extent_.input * size_of(call_.type);
  if (group_.scaled_bytes < bytes) {
    group_.scaled = device::allocate(group_.device, bytes);
    group_.scaled_bytes = bytes;
  }
  scaled_ = group_.scaled;
}

bool Collective::can_scale() const {
  if (!has_factor()) return true;
  if (!group_.alone.exists()) group_.alone.begin(new_identity(), 1, 0);
  return group_.alone.settled("ncclCommInitRankConfig");
}

// NCCL multiplies by a factor only in a reduction. A reduction over this rank alone yields its input times the factor.
void Collective::scale() {
  auto* into = may_scale_into_output() ? output_ : static_cast<std::byte*>(scaled_.get());
  const ncclDataType_t type = element_type(call_.type).value_or(ncclFloat32);
  ncclComm_t alone = group_.alone.get();
  auto factor = in_type(call_.factor, call_.type);
  ncclRedOp_t op = ncclSum;
  check(api().nccl_red_op_create_pre_mul_sum(&op, factor.data(), type, ncclScalarHostImmediate, alone),
        "ncclRedOpCreatePreMulSum", alone);
  const ncclResult_t code = api().nccl_all_reduce(input_, into, extent_.input, type, op, alone, stream());
  (void)api().nccl_red_op_destroy(op, alone);  // the all_reduce has its own copy of the operation
  check(code, "ncclAllReduce", alone);
  input_ = into;
}

void Collective::enqueue() {
  if (call_.count == 0 && !is_uneven(call_.kind) && call_.kind != OperationKind::kBarrier) return;
  check(api().nccl_group_start(), "ncclGroupStart");
  const ncclResult_t code = enqueue_call();
  const ncclResult_t end = api().nccl_group_end();  // even after a failure: every group start needs a group end
  check(code, name_of(call_.kind), group_.communicator.get());
  check(end, name_of(call_.kind), group_.communicator.get());
}

ncclResult_t Collective::enqueue_call() {
  const ncclDataType_t type = element_type(call_.type).value_or(ncclUint8);
  const ncclRedOp_t op = operation(call_.op).value_or(ncclSum);
  const std::size_t count = call_.count;
  const std::size_t bytes = call_.bytes();
  ncclComm_t to = group_.communicator.get();
  switch (call_.kind) {
    case OperationKind::kAllReduce: return api().nccl_all_reduce(input_, output_, count, type, op, to, stream());
    case OperationKind::kReduceScatter:
      return api().nccl_reduce_scatter(input_, output_, count, type, op, to, stream());
    case OperationKind::kReduce: return api().nccl_reduce(input_, output_, count, type, op, call_.root, to, stream());
    case OperationKind::kAllGather: return api().nccl_all_gather(input_, output_, bytes, ncclUint8, to, stream());
    case OperationKind::kBroadcast: {
      const std::byte* input = group_.rank == call_.root ? input_ : output_;
      std::byte* output = group_.rank == call_.root ? const_cast<std::byte*>(input_) : output_;
      return api().nccl_broadcast(input, output, bytes, ncclUint8, call_.root, to, stream());
    }
    case OperationKind::kBarrier:
      return api().nccl_all_reduce(group_.barrier.get(), group_.barrier.get(), 1, ncclUint8, ncclMax, to, stream());
    case OperationKind::kGather:
    case OperationKind::kScatter:
    case OperationKind::kAllToAll:
    case OperationKind::kAllGatherV:
    case OperationKind::kGatherV:
    case OperationKind::kScatterV:
    case OperationKind::kAllToAllV: return enqueue_by_messages();
    case OperationKind::kReduceScatterV: return enqueue_by_reductions();
    default: return ncclInvalidUsage;
  }
}

Collective::Block Collective::block(const std::vector<std::size_t>& counts, int rank) const {
  const auto q = static_cast<std::size_t>(rank);
  return is_uneven(call_.kind) ? Block{begin_of(counts, rank), counts[q]} : Block{q * call_.count, call_.count};
}

Collective::Block Collective::sent_to(int rank) const {
  const OperationKind kind = even_kind(call_.kind);
  const bool in_blocks = kind == OperationKind::kScatter || kind == OperationKind::kAllToAll;
  return in_blocks ? block(call_.counts, rank) : Block{0, extent_.input};
}

Collective::Block Collective::received_from(int rank) const {
  switch (even_kind(call_.kind)) {
    case OperationKind::kScatter: return {0, extent_.output};
    case OperationKind::kAllToAll: return block(call_.arrives, rank);
    default: return block(call_.counts, rank);
  }
}

// Performs operations that NCCL does not have, or has only in recent versions, by sends and recvs in one NCCL group.
// The sends and recvs all run at the same time.
ncclResult_t Collective::enqueue_by_messages() {
  const std::size_t element = size_of(call_.type);
  const OperationKind kind = even_kind(call_.kind);
  const bool is_root = group_.rank == call_.root;
  const bool everywhere = kind == OperationKind::kAllToAll || kind == OperationKind::kAllGather;
  ncclResult_t result = ncclSuccess;
  for (int q = 0; q < group_.size && result == ncclSuccess; ++q) {
    const bool sends = everywhere || (kind == OperationKind::kScatter ? is_root : q == call_.root);
    const bool receives = everywhere || (kind == OperationKind::kGather ? is_root : q == call_.root);
    const Block given = sent_to(q);
    const Block taken = received_from(q);
    if (sends && given.count > 0) {
      result = api().nccl_send(input_ + given.begin * element, given.count * element, ncclUint8, q,
                               group_.communicator.get(), stream());
    }
    if (receives && taken.count > 0 && result == ncclSuccess) {
      result = api().nccl_recv(output_ + taken.begin * element, taken.count * element, ncclUint8, q,
                               group_.communicator.get(), stream());
    }
  }
  return result;
}

// Performs a reduce_scatter with blocks of different sizes: one reduction for each block, to the rank that gets the
// block.
ncclResult_t Collective::enqueue_by_reductions() {
  const ncclDataType_t type = element_type(call_.type).value_or(ncclUint8);
  const ncclRedOp_t op = operation(call_.op).value_or(ncclSum);
  ncclResult_t result = ncclSuccess;
  for (int q = 0; q < group_.size && result == ncclSuccess; ++q) {
    const Block given = block(call_.counts, q);
    if (given.count == 0) continue;
    result = api().nccl_reduce(input_ + given.begin * size_of(call_.type), output_, given.count, type, op, q,
                               group_.communicator.get(), stream());
  }
  return result;
}

}  // namespace reigen::comm::nccl
