// Chooses the next token from a decoder's scores.
// Thread rule: a TokenSampler does not change; several threads may use one at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::models {

struct SamplingOptions {
  bool greedy = false;     // the token with the highest score; the other options do not act then
  double temperature = 1;  // scores are divided by it: above 0; less than 1 prefers likely tokens
  std::int64_t top_k = 0;  // only the k most likely tokens; 0: all
  double top_p = 1;  // only the fewest most likely tokens whose probabilities reach p together: above 0, at most 1
  std::uint64_t seed = 0;
};

class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options);  // throws InvalidArgument for values out of range

  // The token of number `place` in a text: a function of the scores [vocab], the options and the place. temperature
  // comes first, then top_k, then top_p, as in Hugging Face's transformers. Of equal scores the lower token counts as
  // the more likely one. Throws InvalidArgument if no score is a finite number.
  std::int64_t draw(const at::Tensor& scores, std::uint64_t place) const;

 private:
  SamplingOptions options_;
};

}  // namespace reigen::models
