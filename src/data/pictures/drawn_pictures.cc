#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "data/pictures/picture_dataset.h"
#include "data/random_stream.h"

namespace reigen::data {

namespace {

using Colour = std::array<double, 3>;

enum class Shape { kDisc, kSquare, kTriangle, kCross, kRing };

// Whether the shape covers the point (u, v), in coordinates in which the shape reaches from -1 to 1.
bool covers(Shape shape, double u, double v) {
  switch (shape) {
    case Shape::kDisc: return u * u + v * v < 0.85;
    case Shape::kSquare: return std::max(std::abs(u), std::abs(v)) < 0.8;
    case Shape::kTriangle: return v > -0.7 && 1.75 * std::abs(u) + v < 1;
    case Shape::kCross: return std::min(std::abs(u), std::abs(v)) < 0.32 && std::max(std::abs(u), std::abs(v)) < 0.95;
    case Shape::kRing: {
      const double r2 = u * u + v * v;
      return r2 < 0.95 && r2 > 0.27;
    }
  }
  return false;
}

double distance(const Colour& a, const Colour& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

Colour random_colour(RandomStream& random) {
  return {random.uniform(0, 255), random.uniform(0, 255), random.uniform(0, 255)};
}

// A colour that differs visibly from `than`. The number of attempts is limited, so that the search always ends.
Colour other_colour(RandomStream& random, const Colour& than, double least) {
  Colour colour = random_colour(random);
  for (int i = 0; i < 16 && distance(colour, than) < least; ++i) colour = random_colour(random);
  return colour;
}

// Moves, rotates and scales: maps the coordinates of pixels to the coordinates of a shape.
class Frame {
 public:
  explicit Frame(RandomStream& random) {
    // A rotation by any angle. Its sine and cosine are rational functions of t = tan(angle / 2). A t in [-1, 1] gives
    // an angle from -90 to 90 degrees, and a negative sign adds 180 degrees.
    const double t = random.uniform(-1, 1);
    const double sign = random.below(2) == 0 ? 1 : -1;
    const double radius = random.uniform(7.5, 12.5);
    cosine_ = sign * (1 - t * t) / ((1 + t * t) * radius);
    sine_ = sign * 2 * t / ((1 + t * t) * radius);
    x_ = random.uniform(12, 20);
    y_ = random.uniform(12, 20);
  }
  std::pair<double, double> operator()(double x, double y) const {
    const double dx = x - x_;
    const double dy = y - y_;
    return {cosine_ * dx + sine_ * dy, cosine_ * dy - sine_ * dx};
  }

 private:
  double cosine_, sine_, x_, y_;
};

struct Speck {
  double x, y, radius2;
  Colour colour;
};

// All parts of a picture except its noise.
struct Scene {
  Scene(RandomStream& random, int label)
      : shape(static_cast<Shape>(label / 2)), striped(label % 2 == 1), frame(random) {
    ground = random_colour(random);
    paint = other_colour(random, ground, 160);
    stripe = striped ? other_colour(random, paint, 200) : paint;
    for (double& slope : light) slope = random.uniform(-1.6, 1.6);
    period = random.uniform(0.38, 0.62);
    phase = random.uniform(0, 1);
    for (Speck& speck : specks) {
      const double radius = random.uniform(1.2, 3.2);
      speck = {random.uniform(0, 32), random.uniform(0, 32), radius * radius, random_colour(random)};
    }
  }

  const Colour& at(double x, double y) const {
    for (const Speck& speck : specks) {
      const double dx = x - speck.x;
      const double dy = y - speck.y;
      if (dx * dx + dy * dy < speck.radius2) return speck.colour;
    }
    const auto [u, v] = frame(x, y);
    if (!covers(shape, u, v)) return ground;
    const double turns = v / period + phase;
    return striped && turns - std::floor(turns) < 0.5 ? stripe : paint;
  }

  Shape shape;
  bool striped;
  Frame frame;
  Colour ground;
  Colour paint;
  Colour stripe;
  double light[2];  // change of brightness per pixel, to the right and downwards
  double period;    // period of the stripes
  double phase;
  std::array<Speck, 4> specks;
};

// Noise with a standard deviation of 1: the sum of four uniform bytes, which is close to a normal distribution. The sum
// is computed in integers.
double pixel_noise(std::uint32_t bits) {
  const auto sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
  return (static_cast<double>(sum) - 510.0) * (1.0 / 147.8);
}

class DrawnPictures final : public PictureDataset {
 public:
  explicit DrawnPictures(const DrawnPicturesOptions& options)
      : PictureDataset(fmt::format("drawn pictures {}", to_string(options.split)), options.type, options.augment),
        options_(options) {}

  std::int64_t size() const override { return options_.size; }
  Meaning meaning() const override {
    return {{.name = "content", .values = {fmt::format("drawn pictures of seed {}", options_.seed)}}};
  }

 protected:
  std::int64_t draw(std::int64_t index, Pixels& pixels) const override {
    return draw_picture(options_.seed, options_.split, index, pixels);
  }

 private:
  DrawnPicturesOptions options_;
};

}  // namespace

int draw_picture(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kPictureBytes> pixels) {
  REIGEN_CHECK(index >= 0, "the index of a picture must not be negative, got {}", index);
  RandomStream random(seed, split == Split::kTrain ? Purpose::kTrainPicture : Purpose::kTestPicture,
                      static_cast<std::uint64_t>(index));
  const int label = static_cast<int>(random.below(kDrawnClasses));
  const Scene scene(random, label);
  const double grain = random.uniform(5, 40);
  std::uint8_t* out = pixels.data();
  for (int y = 0; y < static_cast<int>(kPictureSide); ++y) {
    for (int x = 0; x < static_cast<int>(kPictureSide); ++x) {
      Colour sum{};
      for (const auto& [dx, dy] : {std::pair{0.25, 0.25}, {0.75, 0.25}, {0.25, 0.75}, {0.75, 0.75}}) {
        const Colour& colour = scene.at(x + dx, y + dy);
        for (std::size_t c = 0; c < 3; ++c) sum[c] += 0.25 * colour[c];
      }
      const double shade = scene.light[0] * (x - 16) + scene.light[1] * (y - 16) + 0.5;
      for (std::size_t c = 0; c < 3; ++c) {
        const double value = sum[c] + shade + grain * pixel_noise(random.next());
        *out++ = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
      }
    }
  }
  return label;
}

DatasetPtr drawn_pictures(const DrawnPicturesOptions& options) {
  constexpr std::int64_t kMost = 100'000'000;
  REIGEN_CHECK(options.size >= 0 && options.size <= kMost, "the number of pictures must be in 0..{}, got {}", kMost,
               options.size);
  DrawnPicturesOptions chosen = options;
  if (chosen.size == 0) chosen.size = options.split == Split::kTrain ? 10'000 : 2'000;
  return std::make_shared<DrawnPictures>(chosen);
}

}  // namespace reigen::data
