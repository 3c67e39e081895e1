// Decides which samples a rank gets, as a pure function of (seed, epoch, position). So one saved number, the position,
// is enough to resume, and the global order is the same for any number of ranks.
//
// An epoch is a permutation of the N samples; a position is an index in this permutation. Step b of an epoch that
// begins (or is resumed) at position `start` takes the positions [start + b·G, min(start + (b+1)·G, N)), where G is the
// global batch. Of these n positions, rank r of P takes [n·r/P, n·(r+1)/P), rounded down. The sizes of the shares
// differ by at most one, and no sample is repeated or left out. A share may be empty if n < P. Thread rule: these types
// are values; every thread may have its own copy. Any thread may call const members.
#pragma once

#include <cstdint>
#include <vector>

namespace reigen::data {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The part of `range` that rank r = `rank` of P = `world_size` takes: [n·r/P, n·(r+1)/P), rounded down and counted from
// range.begin, with n = range.count().
Range share_of(Range range, int rank, int world_size);

// How an epoch's samples are ordered.
//   kNone     0, 1, 2, ...
//   kFull     any order is as likely as any other
//   kBlocks   the samples are divided into blocks of neighbours. The blocks come in a random order. Then the samples
//   are
//             permuted within windows of consecutive positions. A disk reads a block in one go, and only the samples of
//             a window must be at hand.
struct Shuffle {
  enum Kind { kNone, kFull, kBlocks };
  Kind kind = kNone;
  std::int64_t block = 256;    // samples of a block, at least 1
  std::int64_t window = 4096;  // positions of a window, at least 1

  Shuffle() = default;
  Shuffle(bool shuffles) : kind(shuffles ? kFull : kNone) {}  // NOLINT: `.shuffle = true` means kFull
  Shuffle(Kind its_kind) : kind(its_kind) {}                  // NOLINT: `.shuffle = Shuffle::kBlocks`
};

// order[position] = index of the sample. For kNone no table is stored. Otherwise the table is made by Fisher-Yates with
// Philox4x32-10 keyed by the seed. It takes O(N) time and 8·N bytes.
class Order {
 public:
  Order(std::int64_t size, const Shuffle& shuffle, std::uint64_t seed, std::int64_t epoch);
  std::int64_t operator[](std::int64_t position) const {
    return table_.empty() ? position : table_[static_cast<std::size_t>(position)];
  }

 private:
  std::vector<std::int64_t> table_;
};

struct SamplerOptions {
  std::int64_t size = 0;          // N, at least 1
  std::int64_t global_batch = 0;  // G, at least 1
  Shuffle shuffle = {};
  std::uint64_t seed = 0;
  bool drop_last = false;  // leave out the last batch if it has fewer than G samples
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // throws InvalidArgument; DataError if drop_last leaves no batch

  Order order(std::int64_t epoch) const;             // throws InvalidArgument when epoch < 0
  std::int64_t steps(std::int64_t start = 0) const;  // steps of an epoch that begins at this position
  // The positions that all ranks together take in step `step` of an epoch that begins at position `start`.
  Range positions(std::int64_t start, std::int64_t step) const;

  const SamplerOptions& options() const { return options_; }

 private:
  SamplerOptions options_;
};

}  // namespace reigen::data
