// Mixes pairs of samples of a global batch: Pipeline::mix_pairs().
// Thread rule: that of BatchMaker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "reigen/data/dataset.h"
#include "reigen/data/pipeline.h"

namespace reigen::data {

// How a pair is mixed.
struct PairMix {
  double own = 1;                                   // weight of the own sample
  bool cuts = false;                                // cutmix: the box below comes from the partner
  double top = 0, left = 0, bottom = 0, right = 0;  // parts of the height and of the width
};
PairMix pair_mix(const Mixing& mixing, const Pass& pass, std::int64_t pair);

// A sample that is not in the rows, as a batch of one.
using One = std::function<Samples(const Pass& pass, std::int64_t index)>;

// The layout of the value `input` of the rows, asked when one of them is made.
using LayoutOfInput = std::function<image::Layout()>;

// `maker` makes the rows `at`.
std::unique_ptr<BatchMaker> mixed(std::unique_ptr<BatchMaker> maker, const Mixing& mixing, BatchRows at, One one,
                                  LayoutOfInput layout);

}  // namespace reigen::data
