// What a file is that is neither a JPEG nor a PNG picture, told by its content: names lie, and a folder of pictures
// from the web holds every kind. Thread rule: a pure function.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace reigen::data {

struct PictureKind {
  std::string name;  // "a WebP picture", "a pointer of Git LFS"
  std::string fix;   // what to do
};

PictureKind kind_of_picture(std::span<const std::byte> bytes);

}  // namespace reigen::data
