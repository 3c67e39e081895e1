#include "data/pipeline/mixed.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "data/loading/global_batch.h"
#include "reigen/base/error.h"
#include "reigen/base/random.h"

namespace reigen::data {

namespace {

constexpr std::uint32_t kPlaceOfMixing = 0xFFFFFFFFU;  // no map() has this place

// A number with the distribution Gamma(shape, 1). Marsaglia and Tsang, A simple method for generating gamma variables,
// 2000.
double gamma(double shape, Random& random) {
  if (shape < 1) {
    const double power = 1 - random.uniform();  // not 0
    return gamma(shape + 1, random) * std::pow(power, 1 / shape);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double beta(double both, Random& random) {
  const double x = gamma(both, random);
  const double y = gamma(both, random);
  return x + y > 0 ? x / (x + y) : 0.5;
}

// A picture of one row: planes or channels last.
struct Plane {
  std::int64_t planes, height, width, pixel;  // `pixel` values lie beside each other
};
Plane plane_of(const at::Tensor& input, image::Layout layout) {
  REIGEN_CHECK(input.dim() == 4 && input.scalar_type() == c10::kFloat,
               "mix_pairs() mixes pictures and tensors [channels, height, width] of fp32, and got {} of {} dimensions",
               c10::toString(input.scalar_type()), input.dim() - 1);
  if (layout == image::Layout::kPlanes)
    return {.planes = input.size(1), .height = input.size(2), .width = input.size(3), .pixel = 1};
  return {.planes = 1, .height = input.size(1), .width = input.size(2), .pixel = input.size(3)};
}

struct Pixels {
  std::int64_t top, left, bottom, right;
};
Pixels pixels_of(const PairMix& mix, const Plane& plane) {
  const auto at = [](double part, std::int64_t length) {
    return std::clamp<std::int64_t>(std::llround(part * static_cast<double>(length)), 0, length);
  };
  return {at(mix.top, plane.height), at(mix.left, plane.width), at(mix.bottom, plane.height),
          at(mix.right, plane.width)};
}

// The weight of the own sample, after the box was rounded to pixels.
float weight_of(const PairMix& mix, const Plane& plane) {
  if (!mix.cuts) return static_cast<float>(mix.own);
  const Pixels box = pixels_of(mix, plane);
  const auto area = static_cast<double>((box.bottom - box.top) * (box.right - box.left));
  return static_cast<float>(1 - area / static_cast<double>(plane.height * plane.width));
}

// Mixes what belongs to the own picture. `back`: the partner gets what it needs of the own one too.
void mix_pictures(float* own, float* partner, bool back, const PairMix& mix, const Plane& plane) {
  const std::int64_t row = plane.width * plane.pixel;
  if (!mix.cuts) {
    const auto w = static_cast<float>(mix.own);
    const float rest = 1 - w;
    for (std::int64_t i = 0; i < plane.planes * plane.height * row; ++i) {
      const float a = own[i];
      const float b = partner[i];
      own[i] = w * a + rest * b;
      if (back) partner[i] = w * b + rest * a;
    }
    return;
  }
  const Pixels box = pixels_of(mix, plane);
  for (std::int64_t p = 0; p < plane.planes; ++p) {
    for (std::int64_t y = box.top; y < box.bottom; ++y) {
      const std::int64_t at = (p * plane.height + y) * row + box.left * plane.pixel;
      const auto count = static_cast<std::size_t>((box.right - box.left) * plane.pixel);
      if (back) {
        std::swap_ranges(own + at, own + at + count, partner + at);
      } else {
        std::memcpy(own + at, partner + at, count * sizeof(float));
      }
    }
  }
}

[[noreturn]] void refuse_shape(std::int64_t index) {
  throw InvalidArgument(
      Report{.what = fmt::format("sample {} has another shape than its partner in mix_pairs()", index),
             .expected = "pictures of one size",
             .fix = "add image::resize or random_resized_crop before mix_pairs()"});
}

// Rows of which pairs are mixed when all are made. A partner that is in no row is made beside its row.
class Mixed : public BatchMaker {
 public:
  Mixed(std::unique_ptr<BatchMaker> maker, const Mixing& mixing, BatchRows at, One one, LayoutOfInput layout)
      : maker_(std::move(maker)),
        mixing_(mixing),
        at_(std::move(at)),
        one_(std::move(one)),
        layout_(std::move(layout)),
        outside_(at_.indices.size()) {}

  void make(std::size_t row) override {
    maker_->make(row);
    if (at_.partners[row] < 0 || partner_row(row)) return;
    try {
      outside_[row] = one_(at_.pass, at_.partners[row]);
    } catch (const DataError&) {
      // The rank whose sample it is tells of the damage. Without a partner the sample stays as it is.
    }
  }

  Samples finish(std::span<const std::size_t> rows) override {
    Samples samples = maker_->finish(rows);
    const auto count = static_cast<std::int64_t>(rows.size());
    const Plane plane = plane_of(samples.input, layout_());
    REIGEN_CHECK(samples.target.defined() && samples.target.scalar_type() == c10::kLong && samples.target.dim() == 1,
                 "mix_pairs() needs a target that is a class, one number for each sample");
    at::Tensor targets = at::empty({count}, c10::kLong);
    at::Tensor weights = at::empty({count}, c10::kFloat);
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    auto* weight = weights.mutable_data_ptr<float>();
    const auto* own_target = samples.target.const_data_ptr<std::int64_t>();
    auto* input = samples.input.mutable_data_ptr<float>();
    const std::int64_t size = samples.input.numel() / count;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::size_t row = rows[static_cast<std::size_t>(k)];
      const PairMix mix = pair_mix(mixing_, at_.pass, pair_of(row));
      target[k] = own_target[k];
      weight[k] = 1;
      if (Samples& other = outside_[row]; other.input.defined()) {
        if (other.input.sizes().slice(1) != samples.input.sizes().slice(1)) refuse_shape(at_.partners[row]);
        mix_pictures(input + k * size, other.input.mutable_data_ptr<float>(), false, mix, plane);
        target[k] = other.target.const_data_ptr<std::int64_t>()[0];
        weight[k] = weight_of(mix, plane);
      } else if (const auto partner = partner_row(row)) {
        const auto found = std::find(rows.begin(), rows.end(), *partner);
        if (found == rows.end()) continue;  // it was left out
        const std::int64_t j = found - rows.begin();
        if (j > k) mix_pictures(input + k * size, input + j * size, true, mix, plane);
        target[k] = own_target[j];
        weight[k] = weight_of(mix, plane);
      }
    }
    samples.more.emplace_back("mixed_target", std::move(targets));
    samples.more.emplace_back("mixed_weight", std::move(weights));
    return samples;
  }

 private:
  std::int64_t position_of(std::size_t row) const { return at_.begin + static_cast<std::int64_t>(row); }
  std::int64_t pair_of(std::size_t row) const { return at_.epoch_begin + position_of(row) / 2 * 2; }
  // The row of the partner, if it is one of these rows.
  std::optional<std::size_t> partner_row(std::size_t row) const {
    const std::int64_t other = partner_of(position_of(row)) - at_.begin;
    if (at_.partners[row] < 0 || other < 0 || other >= static_cast<std::int64_t>(at_.partners.size()))
      return std::nullopt;
    return static_cast<std::size_t>(other);
  }

  std::unique_ptr<BatchMaker> maker_;
  const Mixing mixing_;
  const BatchRows at_;
  const One one_;
  const LayoutOfInput layout_;
  std::vector<Samples> outside_;  // the partner of a row, if it is in no row
};

}  // namespace

PairMix pair_mix(const Mixing& mixing, const Pass& pass, std::int64_t pair) {
  Random random({.seed = pass.seed, .epoch = pass.epoch, .sample = pair, .place = kPlaceOfMixing});
  const bool cuts = mixing.cutmix > 0 && (mixing.mixup <= 0 || random.chance(0.5));
  const double own = beta(cuts ? mixing.cutmix : mixing.mixup, random);
  PairMix mix{.own = own, .cuts = cuts};
  if (!cuts) return mix;
  // A box of the picture's ratio around a random point, as far as it lies in the picture.
  const double half = std::sqrt(1 - own) / 2;
  const double y = random.uniform();
  const double x = random.uniform();
  mix.top = std::max(y - half, 0.0);
  mix.bottom = std::min(y + half, 1.0);
  mix.left = std::max(x - half, 0.0);
  mix.right = std::min(x + half, 1.0);
  return mix;
}

std::unique_ptr<BatchMaker> mixed(std::unique_ptr<BatchMaker> maker, const Mixing& mixing, BatchRows at, One one,
                                  LayoutOfInput layout) {
  return std::make_unique<Mixed>(std::move(maker), mixing, std::move(at), std::move(one), std::move(layout));
}

}  // namespace reigen::data
