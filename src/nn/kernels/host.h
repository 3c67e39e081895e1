// The calls of device/model_calls.h on memory of the host, without LibTorch. They use the same loops as the kernels of
// the plug-in, except that one thread computes a row and that sums of a row are added in another order. exp, log and
// erf are those of the C library.
// Thread rule: as `share` says.
#pragma once

#include <cstdint>
#include <functional>

#include "device/model_calls.h"

namespace reigen::nn::kernels {

// Runs part(begin, end) for intervals that make up 0 to count - 1, perhaps on several threads, and returns when all are
// done. `elements` is the number of elements that one index stands for. The result does not depend on the intervals.
using Part = std::function<void(std::int64_t begin, std::int64_t end)>;
using Share = std::function<void(std::int64_t count, std::int64_t elements, const Part& part)>;

void run(const device::NormCall& call, const Share& share);
void run(const device::NormBackwardCall& call, const Share& share);
void run(const device::NormSumsCall& call, const Share& share);
void run(const device::BatchStatisticsCall& call, const Share& share);
void run(const device::BatchNormCall& call, const Share& share);
void run(const device::BatchNormSumsCall& call, const Share& share);
void run(const device::BatchNormBackwardCall& call, const Share& share);
void run(const device::CrossEntropyCall& call, const Share& share);
void run(const device::MultiplyCall& call, const Share& share);
void run(const device::GeluCall& call, const Share& share);
void run(const device::GeluBackwardCall& call, const Share& share);
void run(const device::SwigluCall& call, const Share& share);
void run(const device::SwigluBackwardCall& call, const Share& share);
void run(const device::RotaryCall& call, const Share& share);
void run(const device::EmbeddingSumsCall& call, const Share& share);

}  // namespace reigen::nn::kernels
