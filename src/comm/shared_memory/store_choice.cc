#include "comm/shared_memory/store_choice.h"

#include <algorithm>
#include <bit>

namespace reigen::comm::shared_memory {

bool StoreChoice::past_caches(bool guess) {
  if (passes_ == 0) {
    guess_ = chosen_ = current_ = guess;
  } else if (passes_ <= 2 * kSamples) {
    current_ = passes_ % 2 == 1 ? guess_ : !guess_;
  } else {
    current_ = retries_left_ > 0 ? !chosen_ : chosen_;
  }
  return current_;
}

void StoreChoice::took(std::chrono::nanoseconds time, std::size_t bytes) {
  const std::uint64_t pass = passes_++;
  if (pass == 0) return;
  const auto way = static_cast<std::size_t>(current_);
  times_[way][taken_[way]++ % kSamples] = static_cast<double>(time.count()) / static_cast<double>(bytes);
  if (pass < 2 * kSamples) return;
  if (pass == 2 * kSamples) return settle();
  if (retries_left_ > 0) {
    if (--retries_left_ == 0) settle();
  } else if (--retry_in_ == 0) {
    retries_left_ = kSamples;
  }
}

double StoreChoice::median(bool past_caches) const {
  std::array<double, kSamples> sorted = times_[static_cast<std::size_t>(past_caches)];
  std::sort(sorted.begin(), sorted.end());
  return sorted[kSamples / 2];
}

void StoreChoice::settle() {
  constexpr double kWorthIt = 7.0 / 8;
  const bool before = chosen_;
  chosen_ = median(!guess_) < kWorthIt * median(guess_) ? !guess_ : guess_;
  interval_ = chosen_ != before ? kFirstRetry : std::min(2 * interval_, kLastRetry);
  retry_in_ = interval_;
}

StoreChoice& StoreChoices::of(Work work, std::size_t bytes) {
  return classes_[static_cast<std::size_t>(work)][static_cast<std::size_t>(std::bit_width(bytes) - 1)];
}

}  // namespace reigen::comm::shared_memory
