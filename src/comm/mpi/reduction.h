// The element types and reduction operations for MPI. Most operations run our kernels on two inputs.
//
// MPI chooses the order and the number of steps of the additions. They are the same on all ranks, because the standard
// asks for identical results. Reigen's own algorithms fix the order (docs/algorithms.md). Sums and products of fp32 and
// fp64 are MPI's built-in operations, so that a network that can add may do so. All other reductions have a meaning
// that MPI's operations lack: NaN in minimum and maximum, 16-bit floats, integers that wrap around, bools.
// Thread rule: any thread.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "reigen/comm/types.h"

namespace reigen::comm::mpi {

MPI_Datatype element_type(DataType type);

// For an average, operation() returns the operation of the sum; divide() then completes the average.
MPI_Op operation(ReduceOp op, DataType type);

// data[i] /= ranks, as ReduceOp::kAvg defines it: 16-bit floats are divided in fp32, integers are truncated.
void divide(std::byte* data, std::size_t count, DataType type, int ranks);

}  // namespace reigen::comm::mpi
