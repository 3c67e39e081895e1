// Names the kind of a file that is neither JPEG nor PNG. The content decides, because names can be wrong and folders
// of pictures from the web hold files of every kind. Thread rule: a pure function.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace reigen::image {

struct PictureKind {
  std::string name;  // "a WebP picture", "a pointer of Git LFS"
  std::string fix;   // what the user can do
};

PictureKind kind_of_picture(std::span<const std::byte> bytes);

}  // namespace reigen::image
