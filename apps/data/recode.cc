#include "data/recode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/image/draft.h"
#include "reigen/image/encode.h"
#include "reigen/image/resize.h"

namespace reigen::apps::data {

namespace {

constexpr int kMostSide = 65'500;  // libjpeg's
constexpr int kDefaultQuality = 90;

using Coded = std::vector<std::byte>;
using Bytes = std::span<const std::byte>;

// side * multiplier / divisor, rounded down as torchvision does, and at least 1.
int scaled(int side, int multiplier, int divisor) {
  return static_cast<int>(std::max<std::int64_t>(std::int64_t{side} * multiplier / divisor, 1));
}

image::Size with_longest_side(image::Size size, int length) {
  if (size.width >= size.height) return {length, scaled(size.height, length, size.width)};
  return {scaled(size.width, length, size.height), length};
}

// The smallest size of the picture's ratio that covers `wanted`. For a square, its shorter side is that of the square.
image::Size covering(image::Size size, image::Size wanted) {
  const bool is_wider =
      std::int64_t{size.width} * wanted.height > std::int64_t{wanted.width} * size.height;  // than `wanted`
  if (is_wider) return {std::max(scaled(size.width, wanted.height, size.height), wanted.width), wanted.height};
  return {wanted.width, std::max(scaled(size.height, wanted.width, size.width), wanted.height)};
}

// A JPEG file of the picture at the size that `resized` gives; the file as it is if that is not smaller.
Coded shrunk(Bytes picture, const std::string& where, int quality, const auto& resized) {
  image::Draft draft(picture, nullptr, where);
  const image::Size size = draft.size();
  const image::Size smaller = resized(size);
  if (smaller.width >= size.width && smaller.height >= size.height) return {picture.begin(), picture.end()};
  draft.resize(smaller);
  image::Workspace workspace;
  return image::encode_jpeg(draft.picture(workspace), quality);
}

Coded pixels_of(Bytes picture, const std::string& where, image::Size wanted) {
  image::Draft draft(picture, nullptr, where);
  const image::Size whole = covering(draft.size(), wanted);
  draft.resize(whole);
  draft.crop({.left = (whole.width - wanted.width) / 2,
              .top = (whole.height - wanted.height) / 2,
              .width = wanted.width,
              .height = wanted.height});
  const image::Output output{.type = image::PixelType::kU8, .layout = image::Layout::kChannelsLast};
  Coded pixels(image::bytes_of(output, wanted));
  image::Workspace workspace;
  draft.write(output, pixels.data(), workspace);
  return pixels;
}

void require_pictures(const container::Reader& source) {
  const auto& fields = source.fields();
  std::vector<std::string> texts;
  for (const container::Field& field : fields) {
    if (field.kind == container::FieldKind::kPicture) return;
    texts.push_back(container::describe(field));
  }
  throw InvalidArgument(Report{.what = fmt::format("'{}' has no pictures to change", source.name()),
                               .got = fmt::format("{}", fmt::join(texts, ", ")),
                               .expected = "a field of JPEG or PNG files",
                               .fix = "leave --shorter, --longest and --raw out"});
}

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& expected,
                         const std::string& fix) {
  throw InvalidArgument(Report{.what = what, .got = got, .expected = expected, .fix = fix}, ExitCode::kUsage);
}

}  // namespace

image::Size parse_size(const std::string& text, const std::string& option) {
  const std::size_t cross = text.find('x');
  const auto width = base::parse<int>(text.substr(0, cross));
  const auto height = cross == std::string::npos ? width : base::parse<int>(text.substr(cross + 1));
  const auto fits = [](std::optional<int> side) { return side && *side >= 1 && *side <= kMostSide; };
  if (fits(width) && fits(height)) return {*width, *height};
  refuse(option + " gives no size", text, fmt::format("a side, or WIDTHxHEIGHT, each from 1 to {}", kMostSide),
         fmt::format("{} 224, or {} 256x192", option, option));
}

void RecodeOptions::add_to(CLI::App& app) {
  const CLI::Range sides(1, kMostSide);
  app.add_option("--shorter", shorter_, "makes larger pictures so small that the shorter side has this length")
      ->check(sides);
  app.add_option("--longest", longest_, "makes larger pictures so small that the longer side has this length")
      ->check(sides);
  app.add_option("--quality", quality_,
                 fmt::format("of the JPEG files of --shorter and --longest (default {})", kDefaultQuality))
      ->check(CLI::Range(1, 100));
  app.add_option("--raw", raw_,
                 "SIZE or WIDTHxHEIGHT: stores pixels, as tensors U8 [height, width, 3]. Every picture is resized\n"
                 "until it just covers this size, and its middle is taken");
}

void RecodeOptions::check() const {
  const std::string jpeg_option = shorter_ > 0 ? "--shorter" : longest_ > 0 ? "--longest" : "--quality";
  if (!raw_.empty() && (shorter_ > 0 || longest_ > 0 || quality_ > 0)) {
    refuse("--raw stores pixels of one size, and no JPEG files", fmt::format("--raw {} and {}", raw_, jpeg_option),
           "one of them", "leave " + jpeg_option + " out");
  }
  if (shorter_ > 0 && longest_ > 0) {
    refuse("two sizes for a picture", fmt::format("--shorter {} and --longest {}", shorter_, longest_), "one of them",
           "leave one of them out");
  }
  if (quality_ > 0 && shorter_ == 0 && longest_ == 0) {
    refuse("--quality changes no picture by itself", fmt::format("--quality {}", quality_),
           "--shorter or --longest beside it", fmt::format("--longest 500 --quality {}", quality_));
  }
}

void RecodeOptions::apply(const container::Reader& source, container::PackOptions& options) const {
  check();
  if (shorter_ == 0 && longest_ == 0 && raw_.empty()) return;
  if (!raw_.empty()) {
    const image::Size size = parse_size(raw_, "--raw");
    options.recoded = container::Field{.name = "",
                                       .kind = container::FieldKind::kTensor,
                                       .type = format::TensorType::kU8,
                                       .shape = {size.height, size.width, 3}};
    options.recode = [size](Bytes picture, const std::string& where) { return pixels_of(picture, where, size); };
  } else {
    const int quality = quality_ > 0 ? quality_ : kDefaultQuality;
    options.recode = [quality, shorter = shorter_, longest = longest_](Bytes picture, const std::string& where) {
      return shrunk(picture, where, quality, [&](image::Size size) {
        return shorter > 0 ? image::with_shorter_side(size, shorter) : with_longest_side(size, longest);
      });
    };
  }
  require_pictures(source);
}

}  // namespace reigen::apps::data
