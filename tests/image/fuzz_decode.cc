// libFuzzer: any bytes are either a picture or a DataError, and a region of a picture equals that part of the whole.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "reigen/base/error.h"
#include "reigen/image/decode.h"

namespace {

using reigen::image::Box;
using reigen::image::Picture;
using reigen::image::PixelView;
using reigen::image::Size;

constexpr std::int64_t kMostOfARun = 1 << 20;  // a large picture takes long, and shows nothing more

// A box that depends on the bytes.
Box box_in(Size size, std::uint32_t hash) {
  const int left = static_cast<int>(hash % static_cast<unsigned>(size.width));
  const int top = static_cast<int>(hash / 7 % static_cast<unsigned>(size.height));
  return {left, top, 1 + static_cast<int>(hash / 31 % static_cast<unsigned>(size.width - left)),
          1 + static_cast<int>(hash / 101 % static_cast<unsigned>(size.height - top))};
}

void require_part(const Picture& whole, const Picture& part, const Box& box) {
  if (part.size() != box.size()) std::abort();
  for (int y = 0; y < box.height; ++y) {
    const std::uint8_t* wanted = PixelView(whole).row(box.top + y) + 3 * box.left;
    if (!std::equal(wanted, wanted + 3 * box.width, PixelView(part).row(y))) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  std::uint32_t hash = 2166136261;
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint32_t>(byte)) * 16777619;
  try {
    const Size stated = reigen::image::size_of(bytes, "input");
    if (std::int64_t{stated.width} * stated.height > kMostOfARun) return 0;
    const Box box = box_in(stated, hash);
    // The region may have no damage although the rest of the file has. It is decoded even if the whole is not.
    Picture part;
    bool read = true;
    try {
      part = reigen::image::decode(bytes, "input", {.region = box});
      reigen::image::decode(bytes, "input", {.region = box, .scale_to = {1 + box.width / 5, 1 + box.height / 5}});
    } catch (const reigen::DataError&) {
      read = false;
    }
    const Picture whole = reigen::image::decode(bytes, "input");
    if (!read) std::abort();
    require_part(whole, part, box);
  } catch (const reigen::DataError&) {
  }
  return 0;
}
