// The common part of image_folder() and drawn_pictures(): each sample is 32x32 pixels of three bytes and a class.
// gather() returns normalised pixels. gather_in(), which a loader calls, also augments them if `augment` is set.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "reigen/data/pictures.h"

namespace reigen::data {

class PictureDataset : public Dataset {
 public:
  // Throws InvalidArgument unless the type is kFloat or kDouble.
  PictureDataset(std::string name, c10::ScalarType type, bool augment);

  const std::string& name() const override { return name_; }
  Samples gather(std::span<const std::int64_t> indices) const override;
  Samples gather_in(const Pass& pass, std::span<const std::int64_t> indices) const override;

 protected:
  using Pixels = std::array<std::uint8_t, kPictureBytes>;  // row by row, as red, green, blue
  // Writes the sample's pixels and returns its class.
  virtual std::int64_t draw(std::int64_t index, Pixels& pixels) const = 0;

 private:
  Samples gather_with(std::span<const std::int64_t> indices, const Pass* pass) const;

  std::string name_;
  c10::ScalarType type_;
  bool augment_;
};

}  // namespace reigen::data
