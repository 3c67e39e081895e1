// The samples of one batch while threads make them: a sample each if the dataset makes single samples, or if damaged
// samples may be left out; otherwise one thread makes all.
// Thread rule: several threads may call make(); one thread calls the others, before and after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/loading/bad_samples.h"
#include "reigen/data/dataset.h"

namespace reigen::data {

// The policy for damaged samples.
struct Damage {
  std::int64_t most = 0;  // samples that may be left out
  BadSamples& bad;        // counts them
};

class SamplesInMaking {
 public:
  // With `is_pass` the samples are those of gather_in(), without it those of gather().
  SamplesInMaking(const Dataset& data, bool is_pass, BatchRows rows, const Damage& damage);

  std::size_t units() const { return maker_ ? indices_.size() : 1; }
  // Throws the dataset's errors, and DataError for a damaged sample that may not be left out. If `counts` is false,
  // damaged samples are left out without being counted.
  void make(std::size_t unit, bool counts = true);
  // Takes the samples, after all units. They have a row for each of kept().
  Samples finish();
  // The indices that were made, in order; without those that were left out. finish() needs at least one.
  std::vector<std::int64_t> kept() const;

 private:
  std::vector<std::size_t> rows() const;

  const Dataset& data_;
  const std::optional<Pass> pass_;
  const std::vector<std::int64_t> indices_;
  const Damage damage_;
  std::unique_ptr<BatchMaker> maker_;
  std::vector<std::uint8_t> is_bad_;  // for each row; no vector<bool>, because threads write neighbours
  Samples samples_;
};

}  // namespace reigen::data
