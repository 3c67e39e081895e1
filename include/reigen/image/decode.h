// Decodes JPEG and PNG files, wholly or only a region of them.
//
// The values are those of Pillow's Image.open(path).convert("RGB"), which torchvision uses for training: no gamma,
// colour profile or EXIF rotation is applied, and opacity is dropped. Of a value of 16 bits the high byte is taken.
// Only grey of 16 bits differs from Pillow's values, because Pillow clips it at 255. A file whose damage loses pixels
// is refused, even if Pillow invents such pixels (docs/files.md).
//
// The format is recognised by content. `name` is for messages. All functions throw DataError with this name if the
// bytes are neither JPEG nor PNG, are damaged or truncated, or hold more than kMostPixels pixels.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "reigen/image/picture.h"

namespace reigen::image {

// The size that the file's header states. Reads only the header, which takes some microseconds.
Size size_of(std::span<const std::byte> bytes, const std::string& name);

struct DecodeOptions {
  // Only these pixels are decoded; an empty box means the whole picture. The result equals this part of the wholly
  // decoded picture, bit for bit. A region of a JPEG costs less time than the whole picture: below the region nothing
  // is read, and above and beside it the codes are read, but no pixels are computed. So damage that lies below the
  // region, or that leaves the codes readable, may go unseen. A PNG is always read wholly.
  Box region = {};
  // If it is not empty, a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, by its cosine transform. The smallest
  // size is taken at which the region still has at least this width and height (divisor_for). The values are then
  // means over small squares, and not those of the full size.
  Size scale_to = {};
};

// The largest of 1, 2, 4 and 8 by which `size` can be divided without becoming smaller than `at_least`, rounded down;
// 1 if `at_least` is empty.
int divisor_for(Size size, Size at_least);

// With a divisor d, the result has the columns from floor(left / d) to ceil((left + width) / d), and likewise the rows.
// Throws InvalidArgument if the region is not within the picture.
Picture decode(std::span<const std::byte> bytes, const std::string& name, const DecodeOptions& options = {});

}  // namespace reigen::image
