#include "reigen/models/token_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/philox.h"

namespace reigen::models {

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options) {
  REIGEN_CHECK(std::isfinite(options.temperature) && options.temperature > 0,
               "a temperature of {}: it must be above 0 (greedy takes the most likely token)", options.temperature);
  REIGEN_CHECK(options.top_k >= 0, "top_k {}: it must be at least 1, or 0 for all tokens", options.top_k);
  REIGEN_CHECK(options.top_p > 0 && options.top_p <= 1, "top_p {}: it must be above 0 and at most 1", options.top_p);
}

std::int64_t TokenSampler::draw(const at::Tensor& scores, std::uint64_t place) const {
  REIGEN_CHECK(scores.dim() == 1 && scores.size(0) >= 1,
               "a sampler takes scores of the shape [vocab], got {} dimensions", scores.dim());
  const at::Tensor values = scores.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* const all = values.const_data_ptr<double>();
  std::vector<std::int64_t> order(static_cast<std::size_t>(values.size(0)));
  std::iota(order.begin(), order.end(), 0);
  // A NaN is no score. Minus infinity is the score of a token that must not be chosen.
  std::erase_if(order, [&](std::int64_t token) { return !std::isfinite(all[token]); });
  REIGEN_CHECK(!order.empty(), "no score of {} tokens is a finite number", values.size(0));
  const auto is_likelier = [&](std::int64_t a, std::int64_t b) { return all[a] != all[b] ? all[a] > all[b] : a < b; };
  if (options_.greedy) return *std::min_element(order.begin(), order.end(), is_likelier);
  std::sort(order.begin(), order.end(), is_likelier);
  if (options_.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options_.top_k)));
  std::vector<double> sums;  // sums[i]: of the probabilities of the first i + 1 tokens, not normalised
  for (const std::int64_t token : order) {
    const double weight = std::exp((all[token] - all[order[0]]) / options_.temperature);
    sums.push_back((sums.empty() ? 0 : sums.back()) + weight);
  }
  const double kept = options_.top_p * sums.back();
  const auto last = std::lower_bound(sums.begin(), sums.end(), kept);
  if (last != sums.end()) sums.erase(last + 1, sums.end());
  const double drawn = base::unit_interval(base::philox(options_.seed, place)[0]) * sums.back();
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin();
  return order[std::min(static_cast<std::size_t>(chosen), sums.size() - 1)];
}

}  // namespace reigen::models
