#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "train/files/summary_values.h"

namespace reigen::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kAtOnce = 1 << 15;  // elements that are converted together, which fit into a cache

// The exponent of a number and the first 4 bits of its mantissa tell it up to a sixteenth. Limits are further apart, so
// between two such numbers there is at most one limit.
constexpr int kShift = 48;
std::size_t place_of(double magnitude) { return std::bit_cast<std::uint64_t>(magnitude) >> kShift; }

// The limits above 0, and the first of them that is not below the least number of each place.
struct Positive {
  Positive() {
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) limits.push_back(limit);
    limits.push_back(std::numeric_limits<double>::max());
    for (std::size_t place = 0; place < first.size(); ++place) {
      const auto least = std::bit_cast<double>(static_cast<std::uint64_t>(place) << kShift);
      first[place] = static_cast<std::uint16_t>(std::lower_bound(limits.begin(), limits.end(), least) - limits.begin());
    }
  }
  std::vector<double> limits;
  std::array<std::uint16_t, 0x7ff0> first{};
};

const Positive& positive() {
  static const Positive kPositive;
  return kPositive;
}

// The first of Buckets::limits() that is not below `value`. Computes with the sign, because a processor cannot foresee
// a jump that depends on it.
std::size_t bucket_of(double value, const Positive& table) {
  const auto size = static_cast<std::int64_t>(table.limits.size());
  if (value == 0) return table.limits.size();
  const double magnitude = std::abs(value);
  const std::int64_t i = table.first[place_of(magnitude)];
  const double limit = table.limits[static_cast<std::size_t>(i)];
  const std::int64_t is_negative = value < 0 ? 1 : 0;
  const std::int64_t above = limit < magnitude ? 1 : 0, not_below = limit <= magnitude ? 1 : 0;
  const std::int64_t distance = i + is_negative * not_below + (1 - is_negative) * (1 + above);  // from 0's bucket
  return static_cast<std::size_t>(size + (1 - 2 * is_negative) * distance);
}

}  // namespace

const std::vector<double>& Buckets::limits() {
  static const std::vector<double> kLimits = [] {
    std::vector<double> all;
    const std::vector<double>& above = positive().limits;
    for (auto limit = above.rbegin(); limit != above.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), above.begin(), above.end());
    return all;
  }();
  return kLimits;
}

Buckets::Buckets() : sums_(limits().size() + 2), min_(kInfinity), max_(-kInfinity) {}

void Buckets::add(const at::Tensor& values) {
  const Positive& table = positive();
  const at::Tensor flat = values.detach().reshape({-1});
  double sum = 0, squares = 0, least = min_, most = max_;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kAtOnce) {
    const at::Tensor some =
        flat.narrow(0, begin, std::min(kAtOnce, flat.numel() - begin)).to(at::kCPU, at::kDouble).contiguous();
    const double* const numbers = some.const_data_ptr<double>();
    for (std::int64_t i = 0; i < some.numel(); ++i) {
      const double value = numbers[i];
      if (!std::isfinite(value)) continue;
      ++sums_[bucket_of(value, table)];
      least = std::min(least, value);
      most = std::max(most, value);
      sum += value;
      squares += value * value;
    }
  }
  min_ = least;
  max_ = most;
  sums_[limits().size()] += sum;
  sums_[limits().size() + 1] += squares;
}

format::Histogram Buckets::histogram() const {
  const std::vector<double>& all = limits();
  const auto size = static_cast<std::ptrdiff_t>(all.size());
  const auto has = [](double count) { return count > 0; };
  const auto first = std::find_if(sums_.begin(), sums_.begin() + size, has) - sums_.begin();
  if (first == size) return {.limits = {0}, .counts = {0}};
  const auto last = size - (std::find_if(sums_.rbegin() + 2, sums_.rend(), has) - (sums_.rbegin() + 2));
  const std::ptrdiff_t begin = std::max<std::ptrdiff_t>(first - 1, 0);
  format::Histogram result{.min = min_,
                           .max = max_,
                           .sum = sums_[all.size()],
                           .sum_of_squares = sums_[all.size() + 1],
                           .limits = {all.begin() + begin, all.begin() + last},
                           .counts = {sums_.begin() + begin, sums_.begin() + last}};
  for (const double count : result.counts) result.count += count;
  return result;
}

void Buckets::merge(std::vector<Buckets>& all, const Communicator& world) {
  if (world.size() == 1 || all.empty()) return;
  Communicator ranks = world;
  const std::size_t size = limits().size() + 2;
  std::vector<double> sums;
  std::vector<double> ends;
  for (const Buckets& one : all) {
    sums.insert(sums.end(), one.sums_.begin(), one.sums_.end());
    ends.insert(ends.end(), {one.min_, -one.max_});
  }
  ranks.all_reduce(sums.data(), sums.data(), sums.size(), DataType::kFloat64, ReduceOp::kSum, {.tag = "histograms"});
  ranks.all_reduce(ends.data(), ends.data(), ends.size(), DataType::kFloat64, ReduceOp::kMin, {.tag = "histograms"});
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::copy_n(sums.data() + i * size, size, all[i].sums_.begin());
    all[i].min_ = ends[2 * i];
    all[i].max_ = -ends[2 * i + 1];
  }
}

}  // namespace reigen::train
