#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "data/glyphs.h"
#include "data/random_stream.h"
#include "reigen/data/digits.h"

namespace reigen::data {
namespace {

constexpr double kDigitSide = 28;
constexpr int kSpanPieces = 6;  // number of straight lines between two neighbouring points of a stroke

// Distorts the box [0, 1] x [0, 1] in which a digit is drawn, for one image, and maps the box to pixels.
class Distortion {
 public:
  explicit Distortion(RandomStream& random) {
    for (double& b : bend_) b = random.uniform(-0.25, 0.25);
    // For t = tan(angle / 2) the cosine is (1-t²)/(1+t²) and the sine is 2t/(1+t²). They are computed like this because
    // the functions sin and cos differ between libraries.
    const double t = random.uniform(-0.18, 0.18);
    const double cosine = (1 - t * t) / (1 + t * t);
    const double sine = 2 * t / (1 + t * t);
    const double shear = random.uniform(-0.35, 0.35);
    const double height = random.uniform(13.5, 22);
    const double width = height * random.uniform(0.6, 1.05);
    xx_ = cosine * width;
    xy_ = (cosine * shear - sine) * height;
    yx_ = sine * width;
    yy_ = (sine * shear + cosine) * height;
    x0_ = kDigitSide / 2 + random.uniform(-2.5, 2.5);
    y0_ = kDigitSide / 2 + random.uniform(-2.5, 2.5);
  }

  Point operator()(Point p) const {
    const double u = p.x - 0.5;
    const double v = p.y - 0.5;
    const double x = u + bend_[0] * u * u + bend_[1] * u * v + bend_[2] * v * v + 2 * bend_[3] * v * v * v;
    const double y = v + bend_[4] * u * u + bend_[5] * u * v + bend_[6] * v * v + 2 * bend_[7] * u * u * u;
    return {x0_ + xx_ * x + xy_ * y, y0_ + yx_ * x + yy_ * y};
  }

 private:
  std::array<double, 8> bend_{};  // coefficients of a smooth displacement of degree 2 and 3
  double xx_, xy_, yx_, yy_, x0_, y0_;
};

// A Catmull-Rom curve: it passes through all points and has a continuous direction.
Point on_curve(const std::vector<Point>& points, std::size_t span, double t) {
  const Point& b = points[span];
  const Point& c = points[span + 1];
  const Point& a = span > 0 ? points[span - 1] : b;
  const Point& d = span + 2 < points.size() ? points[span + 2] : c;
  const auto value = [t](double p, double q, double r, double s) {
    return q + 0.5 * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {value(a.x, b.x, c.x, d.x), value(a.y, b.y, c.y, d.y)};
}

std::vector<Point> flatten(const Stroke& stroke, const Distortion& distortion, RandomStream& random) {
  std::vector<Point> points(stroke.points.begin(), stroke.points.end());
  const bool closed = points.front() == points.back();
  for (Point& p : points) {
    p.x += random.uniform(-0.035, 0.035);
    p.y += random.uniform(-0.035, 0.035);
  }
  if (closed) points.back() = points.front();
  std::vector<Point> path;
  for (std::size_t span = 0; span + 1 < points.size(); ++span) {
    // Straight strokes are divided too, so that the distortion can bend them.
    for (int piece = 0; piece < kSpanPieces; ++piece) {
      const double t = piece * (1.0 / kSpanPieces);
      const Point& b = points[span];
      const Point& c = points[span + 1];
      path.push_back(
          distortion(stroke.curved ? on_curve(points, span, t) : Point{b.x + t * (c.x - b.x), b.y + t * (c.y - b.y)}));
    }
  }
  path.push_back(distortion(points.back()));
  return path;
}

// `distance2` holds for each pixel its squared distance from the nearest line so far. For each pixel near the piece
// from a to b, this function replaces the value by the squared distance from the piece, if this distance is smaller.
void mark_piece(Point a, Point b, double reach, std::array<double, kDigitPixels>& distance2) {
  const auto first = [&](double low) { return std::clamp(static_cast<int>(low - reach), 0, 27); };
  const auto last = [&](double high) { return std::clamp(static_cast<int>(high + reach) + 1, 0, 27); };
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double length2 = std::max(dx * dx + dy * dy, 1e-12);
  for (int row = first(std::min(a.y, b.y)); row <= last(std::max(a.y, b.y)); ++row) {
    for (int column = first(std::min(a.x, b.x)); column <= last(std::max(a.x, b.x)); ++column) {
      const double px = column + 0.5 - a.x;
      const double py = row + 0.5 - a.y;
      const double t = std::clamp((px * dx + py * dy) / length2, 0.0, 1.0);
      const double ex = px - t * dx;
      const double ey = py - t * dy;
      double& nearest = distance2[static_cast<std::size_t>(row * 28 + column)];
      nearest = std::min(nearest, ex * ex + ey * ey);
    }
  }
}

// Noise with a standard deviation of 1: the sum of four uniform bytes, which is close to a normal distribution. The sum
// is computed in integers.
double noise(std::uint32_t bits) {
  const auto sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
  return (static_cast<double>(sum) - 510.0) * (1.0 / 147.8);
}

}  // namespace

int draw_digit(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kDigitPixels> pixels) {
  REIGEN_CHECK(index >= 0, "the index of a digit must not be negative, got {}", index);
  RandomStream random(seed, split == Split::kTrain ? Purpose::kTrainDigit : Purpose::kTestDigit,
                      static_cast<std::uint64_t>(index));
  const std::uint32_t digit = random.below(10);
  const Ways& ways = kGlyphs[digit];
  const Glyph& glyph = ways[random.below(static_cast<std::uint32_t>(ways.size()))];
  const Distortion distortion(random);
  const double radius = random.uniform(0.6, 1.7);  // radius of the pen, in pixels
  const double ink = random.uniform(150, 255);
  const double grain = random.uniform(4, 38);

  // The line has a soft edge that is one pixel wide. Half of the edge lies outside of the radius.
  const double reach = radius + 0.6;
  std::array<double, kDigitPixels> distance2;
  distance2.fill(1e6);
  for (const Stroke& stroke : glyph) {
    const std::vector<Point> path = flatten(stroke, distortion, random);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) mark_piece(path[i], path[i + 1], reach, distance2);
  }
  for (std::size_t i = 0; i < kDigitPixels; ++i) {
    const double covered = std::clamp(radius + 0.5 - std::sqrt(distance2[i]), 0.0, 1.0);
    const double value = covered * ink + grain * noise(random.next());
    pixels[i] = static_cast<std::uint8_t>(std::clamp(value + 0.5, 0.0, 255.0));
  }
  return static_cast<int>(digit);
}

}  // namespace reigen::data
