#include "reigen/image/draft.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "image/workspace.h"
#include "reigen/image/decode.h"

namespace reigen::image {

namespace {

constexpr int kMostSide = 65'535;

bool within(const Box& box, Size size) {
  return box.left >= 0 && box.top >= 0 && box.width <= size.width - box.left && box.height <= size.height - box.top;
}

// Whether the box of a picture holds the whole picture.
bool covers(const Box& box, Size size) {
  return box.left <= 0 && box.top <= 0 && box.left + box.width >= size.width && box.top + box.height >= size.height;
}

Box whole(Size size) { return {0, 0, size.width, size.height}; }

}  // namespace

Workspace::Workspace() : parts_(std::make_unique<Parts>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
std::size_t Workspace::bytes() const { return parts_->bytes(); }

std::size_t bytes_of(const Output& output, Size size) {
  const std::size_t value = output.type == PixelType::kF32 ? 4 : output.type == PixelType::kBf16 ? 2 : 1;
  return 3 * value * static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
}

Draft::Draft(std::span<const std::byte> bytes, std::shared_ptr<const void> keep, std::string name,
             const DraftOptions& options)
    : name_(std::move(name)), bytes_(bytes), keep_(std::move(keep)), options_(options) {
  const Size size = size_of(bytes_, name_);
  stages_.push_back({.region = whole(size), .resized = size, .window = whole(size)});
}

Draft::Draft(std::shared_ptr<const Picture> picture, std::string name)
    : name_(std::move(name)), pixels_(std::move(picture)) {
  REIGEN_CHECK(pixels_ != nullptr, "the picture '{}' is a null pointer", name_);
  const Size size = pixels_->size();
  const std::int64_t count = std::int64_t{size.width} * size.height;
  if (size.width <= 0 || size.height <= 0 || pixels_->pixels.size() != static_cast<std::size_t>(3 * count)) {
    throw DataError(
        Report{.what = fmt::format("the pixels of the picture '{}' do not fill it", name_),
               .got = fmt::format("{} bytes for {} x {} pixels", pixels_->pixels.size(), size.width, size.height),
               .expected = "three bytes for each pixel, and at least one pixel",
               .fix = "give width, height and pixels of the same picture"});
  }
  stages_.push_back({.region = whole(size), .resized = size, .window = whole(size)});
}

Size Draft::size() const { return stages_.back().window.size(); }

void Draft::require_size(Size size, const char* operation) const {
  REIGEN_CHECK(size.width > 0 && size.height > 0 && size.width <= kMostSide && size.height <= kMostSide,
               "{}: the sides of a picture must be in 1..{}, got {} x {} for '{}'", operation, kMostSide, size.width,
               size.height, name_);
}

// The stage to which an operation on places of pixels is added.
Draft::Stage& Draft::stage_for_geometry(const char* operation) {
  REIGEN_CHECK(erased_.empty(), "{} after an erased box, for '{}': put the erasing last", operation, name_);
  if (stages_.back().colours) {
    const Size size = this->size();
    stages_.push_back({.region = whole(size), .resized = size, .window = whole(size)});
  }
  return stages_.back();
}

void Draft::crop(const Box& box) {
  require_size(box.size(), "crop");
  REIGEN_CHECK(std::abs(std::int64_t{box.left}) <= kMostPixels && std::abs(std::int64_t{box.top}) <= kMostPixels,
               "crop: the box begins at ({}, {}), far outside of the picture '{}'", box.left, box.top, name_);
  Stage* stage = &stage_for_geometry("crop");
  const Size size = this->size();
  Box place = box;
  if (stage->mirrored) place.left = size.width - box.left - box.width;
  const bool inside = within(place, size);
  if (!inside && !covers(stage->window, stage->resized)) {
    // The new box shows black where the old one has cut pixels off, so the old one is carried out first.
    const bool mirrored = std::exchange(stage->mirrored, false);
    stages_.push_back({.region = whole(size), .resized = size, .window = place, .mirrored = mirrored});
    return;
  }
  const bool only_cut = stage->resized == stage->region.size() && stage->window == whole(stage->resized);
  if (inside && only_cut) {
    stage->region = {stage->region.left + place.left, stage->region.top + place.top, place.width, place.height};
    stage->resized = place.size();
    stage->window = whole(place.size());
    return;
  }
  stage->window = {stage->window.left + place.left, stage->window.top + place.top, place.width, place.height};
}

void Draft::resize(Size to) {
  require_size(to, "resize");
  Stage* stage = &stage_for_geometry("resize");
  const Size size = this->size();
  if (to == size) return;
  if (stage->resized != stage->region.size() || stage->window != whole(stage->resized)) {
    const bool mirrored = std::exchange(stage->mirrored, false);
    stages_.push_back({.region = whole(size), .resized = size, .window = whole(size), .mirrored = mirrored});
    stage = &stages_.back();
  }
  stage->resized = to;
  stage->window = whole(to);
}

void Draft::mirror() {
  Stage& stage = stage_for_geometry("mirror");
  stage.mirrored = !stage.mirrored;
}

void Draft::change(const Colours& colours) {
  REIGEN_CHECK(colours.count >= 0 && colours.count <= 4, "a change of colours has 0 to 4 steps, got {}", colours.count);
  for (int i = 0; i < colours.count; ++i) {
    const auto& [what, amount] = colours.changes[static_cast<std::size_t>(i)];
    const bool good = what == Adjustment::kHue ? amount >= -0.5 && amount <= 0.5 : amount >= 0 && amount <= 1e6;
    REIGEN_CHECK(good, "the amount of a change of colours must be at least 0, and -0.5 to 0.5 for the hue, got {}",
                 amount);
  }
  if (colours.count > 0) stage_for_geometry("a change of colours").colours = colours;
}

void Draft::erase(const Box& box) {
  const Size size = this->size();
  REIGEN_CHECK(box.width > 0 && box.height > 0 && within(box, size),
               "the erased box must lie within the {} x {} pixels of '{}', got {} x {} from ({}, {})", size.width,
               size.height, name_, box.width, box.height, box.left, box.top);
  erased_.push_back(box);
}

}  // namespace reigen::image
