// libjpeg-turbo's decoding of a whole file to RGB, with its default settings and as other programs call it: the measure
// beside which `reigen data bench` puts its own work. A PNG is decoded by reigen::image.
// Thread rule: a FullDecode belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace reigen::apps::data {

class FullDecode {
 public:
  // Decodes into memory that is used again. Throws DataError with `where` for a damaged file.
  void operator()(std::span<const std::byte> file, const std::string& where);

 private:
  std::vector<std::uint8_t> pixels_;
};

}  // namespace reigen::apps::data
