#include "reigen/data/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/check.h"
#include "data/pictures/image_dataset.h"

namespace reigen::data {
namespace {

class Digits : public ImageDataset {
 public:
  explicit Digits(const DigitsOptions& options)
      : ImageDataset(fmt::format("digits {}", to_string(options.split)), options.type),
        seed_(options.seed),
        split_(options.split),
        size_(options.size),
        kept_(new Kept[static_cast<std::size_t>(options.size)]) {}

  std::int64_t size() const override { return size_; }
  Meaning meaning() const override {
    return {{.name = "content", .values = {fmt::format("drawn digits of seed {}", seed_)}}};
  }

 protected:
  // Two threads may draw the same image at once. The thread that claims the entry `kept` stores its image there; the
  // other thread uses its own copy.
  Image image(std::int64_t index, Pixels& scratch) const override {
    Kept& kept = kept_[static_cast<std::size_t>(index)];
    if (kept.state.load(std::memory_order_acquire) == State::kReady) return {kept.pixels.data(), kept.label};
    const auto label = static_cast<std::uint8_t>(draw_digit(seed_, split_, index, scratch));
    auto empty = State::kEmpty;
    if (kept.state.compare_exchange_strong(empty, State::kClaimed, std::memory_order_relaxed)) {
      kept.pixels = scratch;
      kept.label = label;
      kept.state.store(State::kReady, std::memory_order_release);
    }
    return {scratch.data(), label};
  }

 private:
  enum class State : std::uint8_t { kEmpty, kClaimed, kReady };
  struct Kept {
    std::atomic<State> state{State::kEmpty};
    std::uint8_t label;
    Pixels pixels;
  };

  std::uint64_t seed_;
  Split split_;
  std::int64_t size_;
  std::unique_ptr<Kept[]> kept_;
};

}  // namespace

DatasetPtr digits(const DigitsOptions& options) {
  constexpr std::int64_t kMost = 100'000'000;
  REIGEN_CHECK(options.size >= 0 && options.size <= kMost, "the number of digits must be in 0..{}, got {}", kMost,
               options.size);
  DigitsOptions chosen = options;
  if (chosen.size == 0) chosen.size = options.split == Split::kTrain ? 20'000 : 4'000;
  return std::make_shared<Digits>(chosen);
}

}  // namespace reigen::data
