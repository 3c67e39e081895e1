// Which part of a dataset: the samples that a model is trained with, or those that it is tested with.
// Thread rule: a value.
#pragma once

namespace reigen::container {

enum class Split { kTrain, kTest };

const char* to_string(Split split);  // "train", "test"

}  // namespace reigen::container
