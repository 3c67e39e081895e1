#include "reigen/base/random.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace reigen {

namespace {

// A counter has 128 bits, and (epoch, sample, place, number) takes more. So the epoch goes into the key.
std::uint64_t key_of(std::uint64_t seed, std::int64_t epoch) {
  constexpr std::uint64_t kOfEpochs = 0x45504F4348ULL;  // no sample has this index, so the words are used only here
  const auto words = base::philox(seed, static_cast<std::uint64_t>(epoch), kOfEpochs << 20);
  return words[0] | std::uint64_t{words[1]} << 32;
}

}  // namespace

Random::Random(const Of& of)
    : key_(key_of(of.seed, of.epoch)),
      sample_(static_cast<std::uint64_t>(of.sample)),
      counter_(std::uint64_t{of.place} << 32) {}

void Random::refill() {
  block_ = base::philox(key_, counter_++, sample_);
  used_ = 0;
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace reigen
