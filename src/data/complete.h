// What a dataset gave, with every field set.
// Thread rule: no shared state.
#pragma once

#include <cstdint>

#include "reigen/data/dataset.h"

namespace reigen::data {

// Sets of input, inputs and target, targets those that the dataset left out. Throws InvalidArgument naming the dataset
// when it gave no input, or a tensor without a row for each of the `count` samples.
Samples complete(Samples samples, const Dataset& from, std::int64_t count);

}  // namespace reigen::data
