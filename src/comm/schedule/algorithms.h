// The algorithms. Each function returns the schedule of one rank. docs/algorithms.md has the costs, and the order in
// which each algorithm adds the inputs. K is the number of ranks, N the number of elements in all, S the number of
// segments.
#pragma once

#include "comm/schedule/schedule.h"

namespace reigen::comm::schedule {

// Every rank sends all its data to every rank that needs them, in one step. Sums run in rank order.
Schedule flat_all_reduce(const Problem& problem);
Schedule flat_reduce(const Problem& problem);
Schedule flat_broadcast(const Problem& problem);
Schedule flat_gather(const Problem& problem);
Schedule flat_scatter(const Problem& problem);
Schedule flat_all_gather(const Problem& problem);
Schedule flat_barrier(const Problem& problem);  // no transfers: the headers of a call make it a barrier already

// Rank r sums block r of all inputs, in rank order and in S pieces. A summed piece is sent in the same step as a later
// piece of the inputs.
Schedule direct_all_reduce(const Problem& problem);
Schedule direct_reduce_scatter(const Problem& problem);
Schedule direct_reduce(const Problem& problem);

// Every rank sends to the next rank and receives from the previous rank. The sum of block b starts at rank b+1 and goes
// around the ring to rank b.
Schedule ring_all_reduce(const Problem& problem);
Schedule ring_reduce_scatter(const Problem& problem);
Schedule ring_all_gather(const Problem& problem);
Schedule ring_broadcast(const Problem& problem);

// Ranks whose numbers differ in one bit exchange data: halving_doubling exchanges ever smaller halves of the sums,
// then ever larger parts of the result; recursive_doubling exchanges whole arrays. If K is not a power of two, some
// ranks (the guests in doubling.cc) first send their input to the rank below, and receive the result from it at the
// end. In every sum, the part of the lower rank is the first operand.
Schedule halving_doubling_all_reduce(const Problem& problem);
Schedule recursive_doubling_all_reduce(const Problem& problem);

// Binomial trees: ceil(log2 K) steps.
Schedule tree_broadcast(const Problem& problem);
Schedule tree_reduce(const Problem& problem);

// K-1 steps. In step i every rank sends to the rank i places after it, and receives from the rank i places before it.
Schedule pairwise_all_to_all(const Problem& problem);

// In step k every rank sends a token to the rank 2^k places after it.
Schedule dissemination_barrier(const Problem& problem);

}  // namespace reigen::comm::schedule
