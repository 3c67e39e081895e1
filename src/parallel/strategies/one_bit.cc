#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/strategies/error_memory.h"
#include "parallel/strategies/shared_tensor.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {

namespace {

std::int64_t bytes_of_signs(std::int64_t count) { return (count + 7) / 8; }

// signs = whether each is negative; kept -= magnitude with that sign.
template <class Number>
void take_signs(Number* kept, std::int64_t count, Number magnitude, std::uint8_t* signs) {
  for (std::int64_t byte = 0; byte < bytes_of_signs(count); ++byte) {
    unsigned bits = 0;
    const std::int64_t end = std::min<std::int64_t>(8, count - 8 * byte);
    for (std::int64_t i = 0; i < end; ++i) {
      Number& value = kept[8 * byte + i];
      const bool negative = value < 0;
      bits |= static_cast<unsigned>(negative) << i;
      value -= negative ? -magnitude : magnitude;
    }
    signs[byte] = static_cast<std::uint8_t>(bits);
  }
}

template <class Number>
void add_signs(Number* sum, std::int64_t count, Number magnitude, const std::uint8_t* signs) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += (signs[i / 8] >> (i % 8) & 1) != 0 ? -magnitude : magnitude;
}

// A bucket's message: for each parameter the magnitude, 8 bytes, and the signs.
class OneBit : public Strategy {
 public:
  explicit OneBit(Communicator world) : world_(std::move(world)) {}

  std::string description() const override { return "one_bit"; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override { errors_.attach(parameters); }

  void begin(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    Part& part = parts_[bucket.index];
    std::int64_t bytes = 0;
    for (const at::Tensor& gradient : bucket.gradients) bytes += size_of(gradient);
    ensure_shared(part.mine, world_, bytes, at::kByte);
    ensure_shared(part.all, world_, bytes * world_.size(), at::kByte);
    auto* out = part.mine.mutable_data_ptr<std::uint8_t>();
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      at::Tensor kept = errors_.add(bucket.names[i], bucket.gradients[i]);
      const double magnitude = kept.numel() == 0 ? 0 : kept.abs().mean().item<double>();
      std::memcpy(out, &magnitude, sizeof magnitude);
      AT_DISPATCH_FLOATING_TYPES(kept.scalar_type(), "one_bit", [&] {
        take_signs(kept.mutable_data_ptr<scalar_t>(), kept.numel(), static_cast<scalar_t>(magnitude),
                   out + sizeof magnitude);
      });
      out += size_of(bucket.gradients[i]);
    }
    part.work =
        world_.all_gather(part.mine.const_data_ptr(), part.all.mutable_data_ptr(), part.mine.nbytes(), DataType::kUint8,
                          {.async = true, .progress = comm::Progress::kCaller, .tag = bucket.tag});
    bytes_ += part.mine.nbytes() * static_cast<std::uint64_t>(world_.size() - 1);
  }

  void end(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    Part& part = parts_[bucket.index];
    std::exchange(part.work, Work()).wait();
    std::int64_t at = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      at::Tensor sum = at::zeros({gradient.numel()}, gradient.options().dtype(wide_type(gradient.scalar_type())));
      for (std::int64_t rank = 0; rank < world_.size(); ++rank) {
        const auto* message = part.all.const_data_ptr<std::uint8_t>() + rank * part.mine.numel() + at;
        double magnitude = 0;
        std::memcpy(&magnitude, message, sizeof magnitude);
        AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "one_bit", [&] {
          add_signs(sum.mutable_data_ptr<scalar_t>(), sum.numel(), static_cast<scalar_t>(magnitude),
                    message + sizeof magnitude);
        });
      }
      at::Tensor(gradient).view({-1}).copy_(sum.div_(static_cast<double>(world_.size())));
      at += size_of(gradient);
    }
  }

  void settle() override { errors_.settle(world_); }
  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> result;
    errors_.add_state(result);
    return result;
  }

 private:
  struct Part {
    at::Tensor mine = {};
    at::Tensor all = {};
    Work work = {};
  };

  static std::int64_t size_of(const at::Tensor& gradient) {
    return static_cast<std::int64_t>(sizeof(double)) + bytes_of_signs(gradient.numel());
  }

  Communicator world_;
  ErrorMemory errors_;
  std::vector<Part> parts_;  // by bucket
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory one_bit() {
  return [](const Communicator& world) { return std::make_unique<OneBit>(world); };
}

}  // namespace reigen::parallel
