// The operations of torchvision.transforms on a Draft, with torchvision's distributions.
//
//   const auto cut = random_resized_crop(224);
//   const auto flip = random_flip();
//   cut(draft, random);
//   flip(draft, random);
//
// An operation takes its random numbers from `random` and from nothing else. They have the distribution of those that
// torchvision draws, and are not the same numbers.
// The functions that make an operation throw InvalidArgument for values that make no sense. An operation throws the
// InvalidArguments of Draft.
// Thread rule: operations are values without state; threads may share one.
#pragma once

#include <array>

#include "reigen/base/random.h"
#include "reigen/image/draft.h"

namespace reigen::image {

struct Range {
  double low = 0;
  double high = 0;
};

// ---- cutting out and resizing

struct RandomResizedCropOptions {
  Range scale = {0.08, 1.0};             // area of the box as a part of the picture's
  Range ratio = {3.0 / 4.0, 4.0 / 3.0};  // width / height of the box; its logarithm is uniform
};
// RandomResizedCrop: a box of random area, ratio and place, resized to size x size. If ten boxes do not fit, the
// largest box in the middle whose ratio is in the range is taken.
struct RandomResizedCrop {
  int size;
  RandomResizedCropOptions options;
  void operator()(Draft& draft, Random& random) const;
  Box box(Size picture, Random& random) const;
};
RandomResizedCrop random_resized_crop(int size, const RandomResizedCropOptions& options = {});

// Resize([height, width]).
struct Resize {
  Size size;
  void operator()(Draft& draft, Random& random) const;
};
Resize resize(int width, int height);

// Resize(length): the shorter side gets this length (with_shorter_side in resize.h).
struct ResizeShorter {
  int length;
  void operator()(Draft& draft, Random& random) const;
};
ResizeShorter resize_shorter(int length);

// CenterCrop(size). A picture that is smaller gets black edges.
struct CenterCrop {
  int size;
  void operator()(Draft& draft, Random& random) const;
};
CenterCrop center_crop(int size);

// RandomCrop(size, padding): black edges of `padding` pixels on all sides, and then a box of size x size at a random
// place. Throws InvalidArgument if the picture with its edges is smaller than the box.
struct PadAndCrop {
  int size;
  int padding;
  void operator()(Draft& draft, Random& random) const;
};
PadAndCrop pad_and_crop(int size, int padding);

// RandomHorizontalFlip.
struct RandomFlip {
  double probability;
  void operator()(Draft& draft, Random& random) const;
};
RandomFlip random_flip(double probability = 0.5);

// ---- colours

// ColorJitter: each of the four is changed by a random amount, in a random order. Brightness, contrast and saturation
// of b mean an amount from max(0, 1 - b) to 1 + b; a hue of h means -h to h. What is 0 is not changed.
struct ColourJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  // at most 0.5
};
struct ColourJitter {
  ColourJitterOptions options;
  void operator()(Draft& draft, Random& random) const;
};
ColourJitter colour_jitter(const ColourJitterOptions& options);

// ---- erasing

struct RandomErasingOptions {
  double p = 0.5;
  Range scale = {0.02, 0.33};  // area of the box as a part of the picture's
  Range ratio = {0.3, 3.3};    // height / width of the box; its logarithm is uniform
};
// RandomErasing(value=0), after normalisation: the box becomes the mean. If ten boxes do not fit, none is erased.
struct RandomErasing {
  RandomErasingOptions options;
  void operator()(Draft& draft, Random& random) const;
};
RandomErasing random_erasing(const RandomErasingOptions& options = {});

}  // namespace reigen::image
