#include "comm/tuning/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "reigen/base/bytes.h"

namespace reigen::comm::tuning {

namespace {

// rounded_up() returns sizes with at most this many significant binary digits.
constexpr std::size_t kBits = 3;
// An algorithm later in the list replaces an earlier one if its time is less than kGain times the earlier one's time.
constexpr double kGain = 0.9;

std::size_t rounded_up(std::size_t bytes) {
  const std::size_t width = static_cast<std::size_t>(std::bit_width(bytes));
  if (width <= kBits) return bytes;
  const std::size_t step = std::size_t{1} << (width - kBits);
  return (bytes + step - 1) / step * step;
}

const Candidate& cheapest_at(std::span<const Candidate> candidates, std::size_t bytes) {
  const Candidate* best = nullptr;
  const auto size = static_cast<double>(bytes);
  for (const Candidate& candidate : candidates) {
    if (bytes > candidate.most) continue;
    if (best == nullptr || candidate.line.at(size) < kGain * best->line.at(size)) best = &candidate;
  }
  REIGEN_ASSERT(best != nullptr, "no algorithm can run {} bytes", bytes);
  return *best;
}

// The sizes at which the result of cheapest_at() may change, in ascending order.
std::vector<std::size_t> turning_points(std::span<const Candidate> candidates) {
  constexpr double kLargest = 1e18;
  std::vector<std::size_t> points = {0};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].most < SIZE_MAX) points.push_back(candidates[i].most + 1);
    const Line first = {kGain * candidates[i].line.alpha, kGain * candidates[i].line.beta};
    for (const Candidate& later : candidates.subspan(i + 1)) {
      if (first.beta == later.line.beta) continue;
      const double crossing = (later.line.alpha - first.alpha) / (first.beta - later.line.beta);
      if (crossing > 0 && crossing < kLargest) points.push_back(static_cast<std::size_t>(crossing) + 1);
    }
  }
  std::sort(points.begin(), points.end());
  return points;
}

}  // namespace

Line fit(std::span<const Sample> samples) {
  REIGEN_ASSERT(!samples.empty(), "a line through nothing");
  double w = 0;  // the sum of the weights; wx is the sum of weight · bytes, wy the sum of weight · seconds, and so on
  double wx = 0;
  double wy = 0;
  double wxx = 0;
  double wxy = 0;
  for (const auto& [x, y] : samples) {
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wy += weight * y;
    wxx += weight * x * x;
    wxy += weight * x * y;
  }
  const double spread = w * wxx - wx * wx;
  if (spread <= 1e-12 * w * wxx) return {wy / w, 0};
  const Line line{(wxx * wy - wx * wxy) / spread, (w * wxy - wx * wy) / spread};
  if (line.beta < 0) return {wy / w, 0};
  if (line.alpha < 0) return {0, wxy / wxx};
  return line;
}

std::vector<Piece> cheapest(std::span<const Candidate> candidates) {
  std::vector<Piece> pieces;
  for (const std::size_t from : turning_points(candidates)) {
    const Candidate& best = cheapest_at(candidates, from);
    if (pieces.empty() || pieces.back().algorithm != best.algorithm) pieces.push_back({best.algorithm, from});
  }
  return pieces;
}

std::string exact_bytes(std::size_t bytes) {
  constexpr std::array kUnits = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bytes > 0 && bytes % kKiB == 0 && unit + 1 < kUnits.size()) {
    bytes /= kKiB;
    unit += 1;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string rules_of(const std::string& operation, std::span<const Piece> pieces) {
  std::string rules;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    rules += fmt::format("{}{}:{}", i == 0 ? "" : ",", operation, pieces[i].algorithm);
    if (i + 1 < pieces.size()) rules += "@<" + exact_bytes(rounded_up(pieces[i + 1].from));
  }
  return rules;
}

}  // namespace reigen::comm::tuning
