// Reductions in MPI's terms: element types, and operations that run our kernels on two inputs.
//
// MPI decides in which order and in how many steps it adds, equally on all ranks (the standard asks for identical
// results); our own engines add in rank order. fp32 and fp64 sums and products are MPI's own, so that a fabric that
// adds by itself may; everything else has a meaning that MPI lacks (NaN in extremes, 16-bit floats, wrapping, truth
// values). Thread rule: any thread.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "reigen/comm/types.h"

namespace reigen::comm::mpi {

MPI_Datatype element_type(DataType type);

// An average is a sum here; divide() ends it.
MPI_Op operation(ReduceOp op, DataType type);

// data[i] /= ranks, as ReduceOp::kAvg says: in fp32 for 16-bit floats, truncated for integers.
void divide(std::byte* data, std::size_t count, DataType type, int ranks);

}  // namespace reigen::comm::mpi
