// The common part of mnist() and digits(): each sample is 28x28 bytes and a digit; gather() returns normalised
// pixels.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "reigen/data/dataset.h"
#include "reigen/data/digits.h"

namespace reigen::data {

class ImageDataset : public Dataset {
 public:
  ImageDataset(std::string name, c10::ScalarType type);  // throws InvalidArgument unless kFloat or kDouble

  const std::string& name() const override { return name_; }
  Samples gather(std::span<const std::int64_t> indices) const override;

 protected:
  using Pixels = std::array<std::uint8_t, kDigitPixels>;
  // The pixels of a sample, either in the dataset's memory or in `scratch`, and its label.
  struct Image {
    const std::uint8_t* pixels;
    std::uint8_t label;
  };
  virtual Image image(std::int64_t index, Pixels& scratch) const = 0;

 private:
  std::string name_;
  c10::ScalarType type_;
};

}  // namespace reigen::data
