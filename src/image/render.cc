// How a Draft becomes pixels.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "image/colours.h"
#include "image/kernels.h"
#include "image/workspace.h"
#include "reigen/image/decode.h"

namespace reigen::image {

namespace {

// Rows of intermediate pictures begin this many bytes apart, so that kernels may write beyond a row's end.
std::size_t padded_row(int width) {
  constexpr std::size_t kUnit = 32;
  return (3 * static_cast<std::size_t>(width) + kRowPadding + kUnit - 1) / kUnit * kUnit;
}

std::size_t bytes_of_rows(std::size_t stride, int rows) { return stride * static_cast<std::size_t>(rows); }

// The part of the window that lies on the resized picture.
Box common_part(const Box& window, Size size) {
  const int left = std::max(window.left, 0);
  const int top = std::max(window.top, 0);
  const int right = std::min(window.left + window.width, size.width);
  const int bottom = std::min(window.top + window.height, size.height);
  return {left, top, std::max(right - left, 0), std::max(bottom - top, 0)};
}

}  // namespace

struct Rendering {
  const Draft& draft;
  Workspace::Parts& parts;

  // The pixels that the stages before the current one have made, or the picture that the Draft was made of. They have
  // no pixels while the file is not decoded.
  PixelView made = {};

  ~Rendering() { parts.release_large(); }  // also if the picture turns out to be damaged
  PixelView run();
  void render(const Draft::Stage& stage, const Pixels& to);
  void copy(const Draft::Stage& stage, const Box& part, const Pixels& to);
  void resize(const Draft::Stage& stage, const Box& part, const Pixels& to);
  void for_each_strip(const Box& box, int divisor, const TakeStrip& take);
};

// Hands on the pixels of a box of the source, divided by the divisor.
void Rendering::for_each_strip(const Box& box, int divisor, const TakeStrip& take) {
  if (made.pixels == nullptr && is_jpeg(draft.bytes_)) {
    return decode_jpeg(draft.bytes_, draft.name_, {.box = box, .divisor = divisor}, parts.jpeg, take);
  }
  if (made.pixels == nullptr) {
    decode_png(draft.bytes_, draft.name_, parts.png);
    made = parts.png;
  }
  take({.first = 0,
        .rows = {made.row(box.top) + 3 * static_cast<std::size_t>(box.left), box.size(), made.stride},
        .readable = 3 * static_cast<std::size_t>(box.width)});
}

void Rendering::copy(const Draft::Stage& stage, const Box& part, const Pixels& to) {
  const Box box{stage.region.left + part.left, stage.region.top + part.top, part.width, part.height};
  for_each_strip(box, 1, [&](const Strip& strip) {
    for (int y = 0; y < strip.rows.size.height; ++y) {
      std::memcpy(to.row(strip.first + y), strip.rows.row(y), 3 * static_cast<std::size_t>(part.width));
    }
  });
}

void Rendering::resize(const Draft::Stage& stage, const Box& part, const Pixels& to) {
  const bool scales = draft.options_.fast && made.pixels == nullptr && is_jpeg(draft.bytes_);
  const int divisor = scales ? divisor_for(stage.region.size(), stage.resized) : 1;
  const Box source = divided(stage.region, divisor);
  const double left = static_cast<double>(stage.region.left) / divisor - source.left;
  const double top = static_cast<double>(stage.region.top) / divisor - source.top;
  fill(parts.across, {.from_size = source.width,
                      .begin = left,
                      .end = left + static_cast<double>(stage.region.width) / divisor,
                      .to_size = stage.resized.width,
                      .first = part.left,
                      .wanted = part.width});
  fill(parts.down, {.from_size = source.height,
                    .begin = top,
                    .end = top + static_cast<double>(stage.region.height) / divisor,
                    .to_size = stage.resized.height,
                    .first = part.top,
                    .wanted = part.height});
  const int first_column = parts.across.begin();
  const int first_row = parts.down.begin();
  const Box box{source.left + first_column, source.top + first_row, parts.across.end() - first_column,
                parts.down.end() - first_row};
  parts.across.shift(first_column);
  parts.down.shift(first_row);
  const std::size_t stride = padded_row(part.width);
  std::uint8_t* const middle = parts.middle.of_size(bytes_of_rows(stride, box.height));
  for_each_strip(box, divisor, [&](const Strip& strip) {
    kernels().across(parts.across, {.rows = strip.rows, .readable = strip.readable},
                     middle + bytes_of_rows(stride, strip.first), stride);
  });
  for (int y = 0; y < part.height; ++y) {
    const auto at = static_cast<std::size_t>(y);
    kernels().down({.weights = parts.down.weights_of(y),
                    .count = parts.down.count[at],
                    .from = middle + bytes_of_rows(stride, parts.down.first[at]),
                    .stride = stride},
                   to.row(y), 3 * static_cast<std::size_t>(part.width));
  }
}

void Rendering::render(const Draft::Stage& stage, const Pixels& to) {
  const Box part = common_part(stage.window, stage.resized);
  if (part.size() != stage.window.size()) std::memset(to.first, 0, bytes_of_rows(to.stride, to.size.height));
  if (part.width > 0 && part.height > 0) {
    const Pixels place{
        .first = to.row(part.top - stage.window.top) + 3 * static_cast<std::size_t>(part.left - stage.window.left),
        .size = part.size(),
        .stride = to.stride};
    if (stage.resized == stage.region.size()) {
      copy(stage, part, place);
    } else {
      resize(stage, part, place);
    }
  }
  if (stage.colours) change_colours(*stage.colours, to);
}

PixelView Rendering::run() {
  if (draft.pixels_ != nullptr) made = *draft.pixels_;
  std::size_t turn = 0;
  for (const Draft::Stage& stage : draft.stages_) {
    const Size size = stage.window.size();
    const std::size_t stride = padded_row(size.width);
    const Pixels to{
        .first = parts.stages[turn].of_size(bytes_of_rows(stride, size.height)), .size = size, .stride = stride};
    render(stage, to);
    if (stage.mirrored && &stage != &draft.stages_.back()) mirror_rows(to);
    made = {to.first, size, stride};
    turn = 1 - turn;
  }
  return made;
}

void Draft::write(const Output& output, void* to, Workspace& workspace) const {
  REIGEN_CHECK(to != nullptr, "the pixels of '{}' need {} bytes of memory, got a null pointer", name_,
               bytes_of(output, size()));
  Workspace::Parts& parts = workspace.parts();
  Rendering rendering{.draft = *this, .parts = parts};
  const PixelView pixels = rendering.run();
  convert({.from = pixels, .mirrored = stages_.back().mirrored, .erased = erased_, .output = output}, parts.tables, to);
}

Picture Draft::picture(Workspace& workspace, const std::array<double, 3>& mean) const {
  const Output output{.type = PixelType::kU8, .layout = Layout::kChannelsLast, .mean = mean};
  Picture result{.width = size().width, .height = size().height};
  result.pixels.resize(bytes_of(output, size()));
  write(output, result.pixels.data(), workspace);
  return result;
}

}  // namespace reigen::image
