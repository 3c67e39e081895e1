// Checks the samples of a dataset.
// Thread rule: no shared state.
#pragma once

#include <cstdint>

#include "reigen/data/dataset.h"

namespace reigen::data {

// Returns `samples`. Throws InvalidArgument naming the dataset `from` if there is no tensor, or if a tensor does not
// have one row for each of the `count` samples.
Samples checked(Samples samples, const Dataset& from, std::int64_t count);

}  // namespace reigen::data
