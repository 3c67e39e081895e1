// The samples of a global batch, as one rank alone makes them.
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "reigen/data/dataset.h"

namespace reigen::data {

// `indices`: the samples of all ranks, in order. `epoch_begin`: the position of the batch in its epoch. Pairs are mixed
// as the ranks mix them (Pipeline::mix_pairs).
Samples global_batch(const Dataset& data, const Pass& pass, const std::vector<std::int64_t>& indices,
                     std::int64_t epoch_begin);

}  // namespace reigen::data
