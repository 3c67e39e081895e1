// The memory of a Workspace.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "image/convert.h"
#include "image/decoders.h"
#include "image/taps.h"
#include "reigen/base/bytes.h"
#include "reigen/image/draft.h"

namespace reigen::image {

// The most bytes that one part of a Workspace keeps between two pictures. A single huge picture would otherwise hold
// its memory in each thread until the training ends. Allocating more than this anew takes less than a tenth of the time
// that a picture of this size takes.
inline constexpr std::size_t kMostKept = 32 * kMiB;

// Bytes without a meaning.
class Bytes {
 public:
  std::uint8_t* of_size(std::size_t size) {
    if (memory_.size() < size) memory_.resize(size);
    return memory_.data();
  }
  std::size_t size() const { return memory_.capacity(); }
  void release() { std::vector<std::uint8_t>().swap(memory_); }  // `memory_ = {}` would keep the capacity

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

  std::size_t bytes() const {
    return jpeg.row.capacity() + jpeg.strip.capacity() + png.pixels.capacity() + middle.size() + stages[0].size() +
           stages[1].size();
  }
  void release_large() noexcept {
    if (png.pixels.capacity() > kMostKept) png = {};
    for (Bytes* part : {&middle, &stages[0], &stages[1]}) {
      if (part->size() > kMostKept) part->release();
    }
  }
};

}  // namespace reigen::image
