// A target that is no class of the model, as LibTorch's cross entropy reports it.
// Thread rule: a pure function.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <span>
#include <string>

namespace reigen::train {

// Throws DataError, with the number of the sample in the data, if `error` says that a target is out of bounds and a row
// of `target` has this value. Otherwise it returns. `indices`: the numbers of the rows' samples. `data`: which data,
// such as "the training data". A GPU does not report such targets in this way.
void throw_if_wrong_label(const c10::Error& error, const at::Tensor& target, std::span<const std::int64_t> indices,
                          const std::string& data);

}  // namespace reigen::train
