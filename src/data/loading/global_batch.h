// Samples that one thread makes alone, and the pairs of a global batch.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/data/dataset.h"

namespace reigen::data {

// The partner of a position in a global batch, as BatchRows says. It may lie behind the batch.
constexpr std::int64_t partner_of(std::int64_t position) { return position % 2 == 0 ? position + 1 : position - 1; }

// Makes all rows, and finishes them.
Samples made_alone(BatchMaker& maker, std::size_t rows);

// `indices`: the samples of all ranks, in order. `epoch_begin`: the position of the batch in its epoch. Pairs are mixed
// as the ranks mix them (Pipeline::mix_pairs).
Samples global_batch(const Dataset& data, const Pass& pass, const std::vector<std::int64_t>& indices,
                     std::int64_t epoch_begin);

}  // namespace reigen::data
