#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/average.h"
#include "parallel/strategies/error_memory.h"
#include "parallel/strategies/ordered_sum.h"
#include "reigen/parallel/strategies.h"
#include "tensor/calls.h"

namespace reigen::parallel {

namespace {

// The message of a parameter: first the mean magnitude of each block of kSharing elements in fp32, then one bit for
// each element, which is set if the element is negative.
constexpr std::int64_t kSharing = 256;
constexpr auto kMagnitudeBytes = static_cast<std::int64_t>(sizeof(float));

std::int64_t bytes_of_signs(std::int64_t count) { return (count + 7) / 8; }
std::int64_t bytes_of_magnitudes(std::int64_t count) { return (count + kSharing - 1) / kSharing * kMagnitudeBytes; }

// A mean is a product with 1/count on every device, because LibTorch computes a division by a number so on GPUs.
double inverse(std::int64_t count) { return 1.0 / static_cast<double>(count); }

template <class Number>
float mean_magnitude(const Number* values, std::int64_t count) {
  std::array<double, kSharing> magnitudes = {};  // as many in the last block too, so that the order is the same
  for (std::int64_t i = 0; i < count; ++i)
    magnitudes[static_cast<std::size_t>(i)] = std::abs(static_cast<double>(values[i]));
  return static_cast<float>(fold(magnitudes.data(), kSharing) * inverse(count));
}

// Writes the elements' signs. Subtracts from each element of `kept` the magnitude, with the sign of the element.
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

// Writes the message for `kept`, and subtracts from `kept` the values that the message carries.
template <class Number>
void take_message(Number* kept, std::int64_t count, std::uint8_t* message) {
  std::uint8_t* signs = message + bytes_of_magnitudes(count);
  for (std::int64_t begin = 0; begin < count; begin += kSharing) {
    const std::int64_t size = std::min(kSharing, count - begin);
    const float magnitude = mean_magnitude(kept + begin, size);
    std::memcpy(message + begin / kSharing * kMagnitudeBytes, &magnitude, sizeof magnitude);
    take_signs(kept + begin, size, static_cast<Number>(magnitude), signs + begin / 8);
  }
}

template <class Number>
void add_message(Number* sum, std::int64_t count, const std::uint8_t* message) {
  const std::uint8_t* signs = message + bytes_of_magnitudes(count);
  for (std::int64_t begin = 0; begin < count; begin += kSharing) {
    float magnitude = 0;
    std::memcpy(&magnitude, message + begin / kSharing * kMagnitudeBytes, sizeof magnitude);
    const std::int64_t end = std::min(begin + kSharing, count);
    for (std::int64_t i = begin; i < end; ++i) {
      const bool negative = (signs[i / 8] >> (i % 8) & 1) != 0;
      sum[i] += static_cast<Number>(negative ? -magnitude : magnitude);
    }
  }
}

// The values that each bit of a byte stands for. They are made on the device, because a copy from the host would make
// the host wait.
at::Tensor bit_values(const at::Device& device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
  return at::ones({8}, bytes).bitwise_left_shift(at::arange(8, bytes));
}

// The same two functions for tensors on a GPU.
void take_message_on_gpu(const at::Tensor& kept, const at::Tensor& message) {
  const std::int64_t count = kept.numel();
  const std::int64_t blocks = (count + kSharing - 1) / kSharing;
  if (blocks == 0) return;
  at::Tensor padded = at::zeros({blocks * kSharing}, kept.options());
  padded.narrow(0, 0, count).copy_(kept);
  padded = padded.view({blocks, kSharing});
  const at::Tensor sums = fold(padded.abs().to(at::kDouble));
  sums.narrow(0, 0, blocks - 1).mul_(inverse(kSharing));
  sums.narrow(0, blocks - 1, 1).mul_(inverse(count - (blocks - 1) * kSharing));
  const at::Tensor magnitudes = at::empty({blocks}, sums.options().dtype(at::kFloat)).copy_(sums);
  message.narrow(0, 0, bytes_of_magnitudes(count)).copy_(magnitudes.view(at::kByte));
  const at::Tensor negative = padded < 0;
  const at::Tensor given = magnitudes.to(kept.scalar_type()).unsqueeze(1);
  at::Tensor(kept).sub_(at::where(negative, -given, given).view({-1}).narrow(0, 0, count));
  const at::Tensor bits = negative.view({-1, 8}).to(at::kByte).mul(bit_values(kept.device()));
  const at::Tensor signs = bits.sum({1}, false, at::kByte);
  message.narrow(0, bytes_of_magnitudes(count), bytes_of_signs(count)).copy_(signs.narrow(0, 0, bytes_of_signs(count)));
}

void add_message_on_gpu(const at::Tensor& sum, const at::Tensor& message) {
  const std::int64_t count = sum.numel();
  if (count == 0) return;
  // The copy begins at an aligned address, as a view of another type must.
  const at::Tensor magnitudes = message.narrow(0, 0, bytes_of_magnitudes(count)).clone().view(at::kFloat);
  const at::Tensor signs = message.narrow(0, bytes_of_magnitudes(count), bytes_of_signs(count)).unsqueeze(1);
  const at::Tensor negative = signs.bitwise_and(bit_values(sum.device())).ne(0).view({-1}).narrow(0, 0, count);
  const at::Tensor each = magnitudes.to(sum.scalar_type()).repeat_interleave(kSharing).narrow(0, 0, count);
  at::Tensor(sum).add_(at::where(negative, -each, each));
}

class OneBit : public GradientStrategy {
 public:
  OneBit(Communicator world, const OneBitOptions& options)
      : world_(std::move(world)), options_(options), step_(at::zeros({1}, at::kLong)) {}

  std::string description() const override { return fmt::format("one_bit start_step {}", options_.start_step); }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override { errors_.attach(parameters); }

  void begin(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    if (bucket.index == 0) step_.add_(1);
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    Part& part = parts_[bucket.index];
    part.plain = *step_.const_data_ptr<std::int64_t>() <= options_.start_step;
    if (part.plain) {
      part.work = begin_average(world_, bucket.runs, bucket.tag);
      bytes_ += bytes_of(bucket.runs);
      return;
    }
    std::int64_t bytes = 0;
    for (const at::Tensor& gradient : bucket.gradients) bytes += size_of(gradient);
    const at::Device device = bucket.gradients.front().device();
    ensure_room(part.mine, world_, bytes, at::kByte, device);
    ensure_room(part.all, world_, bytes * world_.size(), at::kByte, device);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const std::int64_t size = size_of(bucket.gradients[i]);
      write_message(errors_.add(bucket.names[i], bucket.gradients[i]), part.mine.narrow(0, at, size));
      at += size;
    }
    const Stream after = tensor::stream_of(part.mine);
    part.work = world_.start_all_gather(
        part.mine.const_data_ptr(), part.all.mutable_data_ptr(), part.mine.nbytes(), DataType::kUint8,
        {.progress = beside_backward(world_, after.device), .tag = bucket.tag, .after = after});
    bytes_ += part.mine.nbytes() * static_cast<std::uint64_t>(world_.size() - 1);
  }

  void end(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    Part& part = parts_[bucket.index];
    tensor::wait_for(std::exchange(part.work, Work()), part.plain ? bucket.runs.front() : part.mine);
    if (part.plain) return;
    std::int64_t at = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      at::Tensor sum = at::zeros({gradient.numel()}, gradient.options().dtype(wide_type(gradient.scalar_type())));
      for (std::int64_t rank = 0; rank < world_.size(); ++rank) {
        read_message(sum, part.all.narrow(0, rank * part.mine.numel() + at, size_of(gradient)));
      }
      at::Tensor(gradient).view({-1}).copy_(sum.mul_(inverse(world_.size())));
      at += size_of(gradient);
    }
  }

  void settle() override { errors_.settle(world_); }
  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> result{{"step", step_}};
    errors_.add_state(result);
    return result;
  }

 private:
  struct Part {
    bool plain = true;
    at::Tensor mine = {};
    at::Tensor all = {};
    Work work = {};
  };

  static void write_message(const at::Tensor& kept, const at::Tensor& message) {
    if (!kept.is_cpu()) return take_message_on_gpu(kept, message);
    AT_DISPATCH_FLOATING_TYPES(kept.scalar_type(), "one_bit", [&] {
      take_message(kept.mutable_data_ptr<scalar_t>(), kept.numel(), message.mutable_data_ptr<std::uint8_t>());
    });
  }
  static void read_message(const at::Tensor& sum, const at::Tensor& message) {
    if (!sum.is_cpu()) return add_message_on_gpu(sum, message);
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "one_bit", [&] {
      add_message(sum.mutable_data_ptr<scalar_t>(), sum.numel(), message.const_data_ptr<std::uint8_t>());
    });
  }
  static std::int64_t size_of(const at::Tensor& gradient) {
    return bytes_of_magnitudes(gradient.numel()) + bytes_of_signs(gradient.numel());
  }

  Communicator world_;
  const OneBitOptions options_;
  at::Tensor step_;  // number of reductions that began
  ErrorMemory errors_;
  std::vector<Part> parts_;  // indexed by bucket
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory one_bit(const OneBitOptions& options) {
  REIGEN_CHECK(options.start_step >= 0, "[one_bit] start_step is out of range\n  got: {}   expected: 0 or more",
               options.start_step);
  return [options](const Communicator& world) { return std::make_unique<OneBit>(world, options); };
}

}  // namespace reigen::parallel
