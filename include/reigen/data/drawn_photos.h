// Photos that a program draws and codes as JPEG, to try a pipeline of pictures without data.
#pragma once

#include <cstdint>

#include "reigen/data/dataset.h"
#include "reigen/data/pipeline.h"

namespace reigen::data {

struct DrawnPhotosOptions {
  Split split = Split::kTrain;
  std::int64_t size = 0;  // number of photos; 0 means 10,000 for training and 2,000 for test
  std::uint64_t seed = 0;
};

// `input`: a picture of about 200 x 160 pixels, `target`: its class, 0..9. It is a picture of draw_picture()
// (pictures.h) that was enlarged and coded as JPEG of quality 90; it is decoded as any other. Every byte is a function
// of (seed, split, index) and of the version of libjpeg. Drawing and coding a photo takes about 1 ms. Throws
// InvalidArgument for a negative size.
Pipeline drawn_photos(const DrawnPhotosOptions& options = {});

}  // namespace reigen::data
