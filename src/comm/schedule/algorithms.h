// The algorithms. Each function returns the schedule of one rank, `problem.rank`. docs/algorithms.md has the costs, and
// the order in which each algorithm adds the inputs. K is the number of ranks, S the number of segments
// (Problem::segments). Rank numbers are modulo K.
#pragma once

#include "comm/schedule/schedule.h"

namespace reigen::comm::schedule {

// In one step, every rank sends its data to every rank that needs them. Inputs are added in rank order.
Schedule flat_all_reduce(const Problem& problem);
Schedule flat_reduce(const Problem& problem);
Schedule flat_broadcast(const Problem& problem);
Schedule flat_gather(const Problem& problem);
Schedule flat_scatter(const Problem& problem);
Schedule flat_all_gather(const Problem& problem);
// Transfers nothing. Over TCP every call waits for a header from every rank, and this wait is the barrier.
Schedule flat_barrier(const Problem& problem);

// Rank r adds block r of all inputs, in rank order and in S pieces. In all_reduce it sends the sums to all ranks, in
// reduce to the root. It sends the sum of a piece in a later step, together with a later piece of its input.
Schedule direct_all_reduce(const Problem& problem);
Schedule direct_reduce_scatter(const Problem& problem);
Schedule direct_reduce(const Problem& problem);

// Every rank sends to the next rank and receives from the previous rank. The sum of block b starts at rank b+1. Each
// rank adds its input and sends the sum on, until rank b has the complete sum.
Schedule ring_all_reduce(const Problem& problem);
Schedule ring_reduce_scatter(const Problem& problem);
Schedule ring_all_gather(const Problem& problem);
Schedule ring_broadcast(const Problem& problem);

// In each step, ranks whose numbers differ in one bit exchange data. In recursive_doubling they exchange whole arrays.
// In halving_doubling they first add: each step exchanges half as many elements as the step before. Then they gather
// the result: each step exchanges twice as many elements as the step before. If K is not a power of two, some ranks
// (the guests in doubling.cc) first send their input to the rank with the next lower number, and receive the result
// from that rank at the end. In every sum, the data of the lower rank are the first operand.
Schedule halving_doubling_all_reduce(const Problem& problem);
Schedule recursive_doubling_all_reduce(const Problem& problem);

// A binomial tree from the root of the call: ceil(log2 K) steps.
Schedule tree_broadcast(const Problem& problem);
Schedule tree_reduce(const Problem& problem);

// K-1 steps. In step i every rank r sends to rank r+i and receives from rank r-i.
Schedule pairwise_all_to_all(const Problem& problem);

// In step k, counted from 0, every rank r sends one element, whose value means nothing, to rank r+2^k.
Schedule dissemination_barrier(const Problem& problem);

}  // namespace reigen::comm::schedule
