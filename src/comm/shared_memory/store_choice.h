// Chooses how a rank writes its results in a large call: with plain stores, or with non-temporal stores, which bypass
// the caches. Which kind is faster depends on the caches. Other virtual machines of the host use them too, and the
// program leaves data in them. So each rank measures both kinds in its calls. Both kinds give the same bits, so the
// ranks need not agree on one kind.
//
// A pass is the work of one rank in one call: its sums or its copies. Passes of the same kind of work whose numbers of
// bytes have the same binary logarithm, rounded down, form a class. The first pass of a class follows the guess of the
// caller. It is not counted, because it may touch memory for the first time. The next six passes use the two kinds of
// stores in turn. Then the class chooses the kind with the lower median of three times. The guess knows
// of an effect that the time of a pass does not show: data that remain in the caches help the rank that reads them
// next. So the kind that was not guessed must be an eighth faster than the guessed kind. After 64 passes the class
// tries the other kind again for three passes. Each time the other kind loses, the next trial comes after twice as many
// passes as before, up to 4096. So the class notices a change of the machine. On a machine that does not change, less
// than a thousandth of the passes are trials.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace reigen::comm::shared_memory {

// One class of passes.
class StoreChoice {
 public:
  // Whether the next pass uses non-temporal stores. `guess`: whether the caller expects them to be faster.
  bool past_caches(bool guess);
  // Reports how long the pass took. Call it once for every past_caches(), in the same order.
  void took(std::chrono::nanoseconds time, std::size_t bytes);

 private:
  static constexpr int kSamples = 3;
  static constexpr std::uint64_t kFirstRetry = 64;
  static constexpr std::uint64_t kLastRetry = 4096;

  double median(bool past_caches) const;
  void settle();

  std::array<std::array<double, kSamples>, 2> times_{};  // ns per byte: of plain stores, of non-temporal stores
  std::array<std::uint64_t, 2> taken_{};                 // number of measured passes, for each kind
  std::uint64_t passes_ = 0;
  std::uint64_t retry_in_ = 0;                // passes until the other kind is tried again
  std::uint64_t interval_ = kFirstRetry / 2;  // passes between two trials; doubled when a trial changes nothing
  int retries_left_ = 0;                      // remaining passes of a trial of the other kind
  bool guess_ = false;
  bool chosen_ = false;
  bool current_ = false;
};

// The classes of a group.
class StoreChoices {
 public:
  enum class Work { kSum, kCopy };
  // A rank that reads and writes fewer bytes than this in a call uses plain stores, because its data fit into the
  // caches of its own core.
  static constexpr std::size_t kLeastBytes = std::size_t{2} << 20;

  StoreChoice& of(Work work, std::size_t bytes);

 private:
  std::array<std::array<StoreChoice, 64>, 2> classes_{};
};

}  // namespace reigen::comm::shared_memory
