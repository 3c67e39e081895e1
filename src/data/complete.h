// Checks the samples of a dataset and sets all of their fields.
// Thread rule: no shared state.
#pragma once

#include <cstdint>

#include "reigen/data/dataset.h"

namespace reigen::data {

// Sets those of the fields `input`, `inputs`, `target` and `targets` of `samples` that the dataset `from` left empty.
// Throws InvalidArgument naming the dataset if there is no input, or if a tensor does not have one row for each of the
// `count` samples.
Samples complete(Samples samples, const Dataset& from, std::int64_t count);

}  // namespace reigen::data
