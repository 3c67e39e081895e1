// How a rank writes what it adds or copies in a large call: with plain stores, or past the caches. Which one is faster
// depends on caches that other machines of the host use as well, and on what the program leaves in them, so it is
// measured in the calls themselves. Both give the same bits, so every rank decides for itself.
//
// Passes of one kind and of one power of two of bytes are a class. Its first pass goes by the caller's guess and is not
// counted (it may meet memory for the first time); the next six go both ways by turns; then the class keeps to the way
// with the lower median of three, the other than the guess only if it is an eighth faster, because what stays in the
// caches is of use to whoever reads it next. The other way is tried again, three passes long, after 64 passes, then
// after twice as many each time it loses, up to 4096: a machine that changes is noticed and one that does not pays less
// than a thousandth.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace reigen::comm::shared_memory {

// One class of passes.
class StoreChoice {
 public:
  // Whether the next pass writes past the caches.
  bool past_caches(bool guess);
  // What it took; for every past_caches(), once, in the same order.
  void took(std::chrono::nanoseconds time, std::size_t bytes);

 private:
  static constexpr int kSamples = 3;
  static constexpr std::uint64_t kFirstRetry = 64;
  static constexpr std::uint64_t kLastRetry = 4096;

  double median(bool past_caches) const;
  void settle();

  std::array<std::array<double, kSamples>, 2> times_{};  // ns a byte: plain, past the caches
  std::array<std::uint64_t, 2> taken_{};
  std::uint64_t passes_ = 0;
  std::uint64_t retry_in_ = 0;                // passes
  std::uint64_t interval_ = kFirstRetry / 2;  // doubled when the guess holds
  int retries_left_ = 0;                      // of the way that is not chosen
  bool guess_ = false;
  bool chosen_ = false;
  bool current_ = false;
};

// The classes of a group.
class StoreChoices {
 public:
  enum class Work { kSum, kCopy };
  // Less than this, read and written by a rank, stays within what a core's own caches hold: plain stores.
  static constexpr std::size_t kLeastBytes = std::size_t{2} << 20;

  StoreChoice& of(Work work, std::size_t bytes);

 private:
  std::array<std::array<StoreChoice, 64>, 2> classes_{};
};

}  // namespace reigen::comm::shared_memory
