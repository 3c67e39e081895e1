// The memory of a Workspace.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "image/convert.h"
#include "image/decoders.h"
#include "image/taps.h"
#include "reigen/image/draft.h"

namespace reigen::image {

// Bytes without a meaning, which only grow.
class Bytes {
 public:
  std::uint8_t* of_size(std::size_t size) {
    if (memory_.size() < size) memory_.resize(size);
    return memory_.data();
  }

 private:
  std::vector<std::uint8_t> memory_;
};

struct Workspace::Parts {
  JpegBuffers jpeg;
  Picture png;
  Taps across;
  Taps down;
  Bytes middle;                 // rows that are resized in one direction
  std::array<Bytes, 2> stages;  // results of stages
  Tables tables;
};

}  // namespace reigen::image
