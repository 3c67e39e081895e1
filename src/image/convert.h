// Writes pixels in the type and layout that the caller wants.
// Thread rule: values and functions without state.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "reigen/image/draft.h"

namespace reigen::image {

// The value of each byte in each colour. It is kept from one picture to the next.
class Tables {
 public:
  // Makes the tables of this output, unless they are there. Throws InvalidArgument for a deviation that is not
  // positive.
  void prepare(const Output& output);
  const std::array<std::array<float, 256>, 3>& f32() const { return f32_; }
  const std::array<std::array<std::uint16_t, 256>, 3>& bf16() const { return bf16_; }

 private:
  Output made_ = {.type = PixelType::kU8};
  std::array<std::array<float, 256>, 3> f32_{};
  std::array<std::array<std::uint16_t, 256>, 3> bf16_{};
};

struct Conversion {
  PixelView from;
  bool mirrored = false;
  std::span<const Box> erased;  // in the result
  Output output;
};

void convert(const Conversion& conversion, Tables& tables, void* to);

}  // namespace reigen::image
