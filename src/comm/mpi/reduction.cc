#include "comm/mpi/reduction.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/mpi/library.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::mpi {

namespace {

constexpr std::size_t kTypes = static_cast<std::size_t>(DataType::kBool) + 1;
constexpr std::size_t kOps = static_cast<std::size_t>(ReduceOp::kBxor) + 1;

// An MPI_User_function. MPI passes the partial result of the lower ranks in `first`, and expects the result in
// `second`.
template <std::size_t kType, std::size_t kOp>
void reduce_two(void* first, void* second, int* count, MPI_Datatype*) {
  const std::array<const std::byte*, 2> inputs = {static_cast<const std::byte*>(first),
                                                  static_cast<const std::byte*>(second)};
  auto* output = static_cast<std::byte*>(second);
  reduce::run({.inputs = inputs.data(),
               .outputs = &output,
               .input_count = 2,
               .output_count = 1,
               .count = static_cast<std::size_t>(*count),
               .type = static_cast<DataType>(kType),
               .op = static_cast<ReduceOp>(kOp)});
}

using Functions = std::array<MPI_User_function*, kTypes * kOps>;

template <std::size_t... kAt>
constexpr Functions all_functions(std::index_sequence<kAt...>) {
  return {&reduce_two<kAt / kOps, kAt % kOps>...};
}

// The MPI operations that run Reigen's kernels. Each is created at its first use and lives as long as MPI.
struct Operations {
  std::mutex mutex;
  std::array<MPI_Op, kTypes * kOps> made;
  Operations() { made.fill(MPI_OP_NULL); }
};

Operations& operations() {
  static auto* all = new Operations;
  return *all;
}

bool is_of_mpi(ReduceOp op, DataType type) {
  return (type == DataType::kFloat32 || type == DataType::kFloat64) && (op == ReduceOp::kSum || op == ReduceOp::kProd);
}

}  // namespace

MPI_Datatype element_type(DataType type) {
  switch (type) {
    case DataType::kInt8: return MPI_INT8_T;
    case DataType::kUint8: return MPI_UINT8_T;
    case DataType::kInt16: return MPI_INT16_T;
    case DataType::kInt32: return MPI_INT32_T;
    case DataType::kInt64: return MPI_INT64_T;
    case DataType::kFloat16:
    case DataType::kBfloat16: return MPI_UINT16_T;
    case DataType::kFloat32: return MPI_FLOAT;
    case DataType::kFloat64: return MPI_DOUBLE;
    case DataType::kBool: return MPI_UINT8_T;
  }
  return MPI_BYTE;
}

MPI_Op operation(ReduceOp op, DataType type) {
  static constexpr Functions kFunctions = all_functions(std::make_index_sequence<kTypes * kOps>());
  if (op == ReduceOp::kAvg) op = ReduceOp::kSum;
  if (is_of_mpi(op, type)) return op == ReduceOp::kSum ? MPI_SUM : MPI_PROD;
  const std::size_t at = static_cast<std::size_t>(type) * kOps + static_cast<std::size_t>(op);
  std::lock_guard lock(operations().mutex);
  MPI_Op& made = operations().made[at];
  if (made == MPI_OP_NULL) check(MPI_Op_create(kFunctions[at], 1, &made), "MPI_Op_create");
  return made;
}

// The kernel of an average divides by its number of inputs. So divide() passes the sum as the first of `ranks` inputs.
// The other inputs are zeros, which do not change the sum.
void divide(std::byte* data, std::size_t count, DataType type, int ranks) {
  constexpr std::size_t kZeros = 16384;
  static const std::vector<std::byte> zeros(kZeros);
  const std::size_t most = kZeros / size_of(type);
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(ranks), zeros.data());
  for (std::size_t begin = 0; begin < count; begin += most) {
    std::byte* part = data + begin * size_of(type);
    inputs[0] = part;
    reduce::run({.inputs = inputs.data(),
                 .outputs = &part,
                 .input_count = ranks,
                 .output_count = 1,
                 .count = std::min(most, count - begin),
                 .type = type,
                 .op = ReduceOp::kAvg});
  }
}

}  // namespace reigen::comm::mpi
