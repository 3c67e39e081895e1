// The element types and reduction operations for MPI. Most operations run Reigen's kernels (comm/reduce/) on two
// inputs.
//
// MPI chooses the order and the number of steps of the additions. All ranks get the same result, as the MPI standard
// requires. Reigen's own algorithms add in an order that Reigen fixes (docs/algorithms.md). Sums and products of fp32
// and fp64 are MPI's built-in operations, so that a network that can add in hardware does so. All other reductions
// follow rules that MPI's operations do not have: for NaN in minimum and maximum, for 16-bit floats, for integers that
// wrap around, and for bools.
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
