#include "parallel/check/weight_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "reigen/base/error.h"

namespace reigen::parallel {
namespace {

constexpr std::uint64_t kWeights = 16;  // the weights that one step samples: few, because each may be a cache miss
constexpr std::size_t kDigits = 8;
constexpr const char* kWord = "weights ";
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;

// SplitMix64, by Steele et al.: it maps neighbouring numbers to unrelated ones.
std::uint64_t mixed(std::uint64_t x) {
  x += kOdd;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Maps `word` evenly to a number below `end`, without a division (Lemire). For `end` up to 2^32, every number can
// result. For a larger `end`, only multiples of end / 2^32 (rounded down) can result.
std::uint64_t below(std::uint64_t word, std::uint64_t end) {
  const std::uint64_t high = word >> 32;
  return end >> 32 == 0 ? (high * end) >> 32 : high * (end >> 32);
}

}  // namespace

WeightSample::WeightSample(const std::vector<tensor::ParameterRange>& ranges) {
  for (const tensor::ParameterRange& range : ranges) {
    for (const tensor::Segment& segment : range.segments()) {
      if (segment.numel == 0) continue;
      places_.push_back({static_cast<const char*>(segment.parameter.const_data_ptr()),
                         static_cast<std::uint64_t>(segment.numel),
                         static_cast<std::uint64_t>(segment.parameter.element_size())});
    }
  }
}

std::string WeightSample::text(std::int64_t step) const {
  std::uint64_t hash = 0;
  const std::uint64_t first = static_cast<std::uint64_t>(step) * kWeights;
  std::uint64_t word = mixed(first);
  std::uint64_t parameter = places_.empty() ? 0 : first % places_.size();
  for (std::uint64_t i = 0; i < kWeights && !places_.empty(); ++i) {
    const Place& place = places_[parameter];
    std::uint64_t bits = 0;
    std::memcpy(&bits, place.data + below(word, place.numel) * place.bytes,
                std::min<std::uint64_t>(place.bytes, sizeof bits));
    hash = (hash ^ bits) * kOdd;
    hash ^= hash >> 32;
    word += kOdd;  // the words are a Weyl sequence: their high halves are spread evenly
    if (++parameter == places_.size()) parameter = 0;
  }
  return fmt::format("{}{:08x}", kWord, static_cast<std::uint32_t>(mixed(hash) >> 32));
}

void throw_if_weights_differ(const std::string& text, const std::string& label) {
  const std::string wanted = label + " " + kWord;
  std::set<std::string> seen;
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    seen.insert(text.substr(at + wanted.size(), kDigits));
  }
  if (seen.size() < 2) return;
  throw Error(
      ExitCode::kReplicasDiverged,
      Report{
          .what =
              fmt::format("[data_parallel] the ranks' weights differ ({}): their last steps were not the same", label),
          .got = text,
          .expected = "the same weights on every rank, which all step with the same gradients",
          .fix = "an optimizer that decides by the loss (torch::optim::LBFGS) must see the mean of all ranks' losses:"
                 " wrap it in DistributedOptimizer, or average the loss in the closure; ranks with another kind of "
                 "processor or number of threads round differently, e.g. in clip_grad_norm_: the same "
                 "OMP_NUM_THREADS everywhere, or compare_weights = false; where ranks are meant to differ, "
                 "DataParallelOptions{.compare_weights = false} (docs/data_parallel.md)"});
}

}  // namespace reigen::parallel
