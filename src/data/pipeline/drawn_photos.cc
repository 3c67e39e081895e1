#include "reigen/data/drawn_photos.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "data/pipeline/source.h"
#include "reigen/data/pictures.h"
#include "reigen/image/encode.h"
#include "reigen/image/resize.h"

namespace reigen::data {

namespace {

constexpr int kQuality = 90;

std::vector<std::string> names_of_drawn() {
  std::vector<std::string> names;
  for (const char* shape : {"disc", "square", "triangle", "cross", "ring"}) {
    for (const char* kind : {"plain", "striped"}) names.push_back(fmt::format("{} {}", kind, shape));
  }
  return names;
}

class DrawnPhotos : public SampleSource {
 public:
  explicit DrawnPhotos(const DrawnPhotosOptions& options)
      : options_(options), name_(fmt::format("drawn photos {}", to_string(options.split))) {}

  std::int64_t size() const override { return options_.size; }
  const std::string& name() const override { return name_; }
  std::int64_t terms(std::int64_t) const override { return 1; }
  Meaning meaning() const override {
    return {{.name = "classes", .values = names_of_drawn(), .one = "class"},
            {.name = "drawn", .values = {fmt::format("{} photos, seed {}", options_.size, options_.seed)}}};
  }

  Sample sample(const Pass&, std::int64_t index) const override {
    image::Picture small{.width = static_cast<int>(kPictureSide), .height = static_cast<int>(kPictureSide)};
    small.pixels.resize(kPictureBytes);
    const int label = draw_picture(options_.seed, options_.split, index,
                                   std::span<std::uint8_t, kPictureBytes>(small.pixels.data(), kPictureBytes));
    // Sizes differ, as those of photos do.
    const image::Size size{.width = 192 + static_cast<int>(index % 5) * 8,
                           .height = 160 + static_cast<int>(index % 3) * 8};
    auto coded =
        std::make_shared<const std::vector<std::byte>>(image::encode_jpeg(image::resize(small, size), kQuality));
    Sample sample(index, fmt::format("{}, sample {}", name_, index));
    const std::span<const std::byte> bytes(*coded);
    sample.set("input", image::Draft(bytes, std::move(coded), sample.where()));
    at::Tensor target = at::empty({}, c10::kLong);
    *target.mutable_data_ptr<std::int64_t>() = label;
    sample.set("target", std::move(target));
    return sample;
  }

 private:
  DrawnPhotosOptions options_;
  std::string name_;
};

}  // namespace

Pipeline drawn_photos(const DrawnPhotosOptions& options) {
  REIGEN_CHECK(options.size >= 0, "the number of drawn photos must be at least 0, got {}", options.size);
  DrawnPhotosOptions chosen = options;
  if (chosen.size == 0) chosen.size = chosen.split == Split::kTrain ? 10'000 : 2'000;
  return pipeline_of(std::make_shared<DrawnPhotos>(chosen));
}

}  // namespace reigen::data
