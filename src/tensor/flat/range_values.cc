#include "reigen/tensor/range_values.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "reigen/format/hash.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/flat/make_range_values.h"

namespace reigen::tensor {

std::vector<std::size_t> Shares::sizes() const {
  std::vector<std::size_t> result;
  for (std::size_t q = 0; q + 1 < bounds.size(); ++q) {
    result.push_back(static_cast<std::size_t>(bounds[q + 1] - bounds[q]));
  }
  return result;
}

void RangeValues::exchange(const std::function<void(const Communicator& ranks)>& calls) {
  if (!shares_) return;
  const auto begin = std::chrono::steady_clock::now();
  calls(shares_->ranks);
  seconds_met_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

namespace {

class CommonValues final : public RangeValues {
 public:
  CommonValues(Shares shares, at::Tensor values, std::vector<Extent> parameters)
      : RangeValues(std::move(shares)), values_(std::move(values)), parameters_(std::move(parameters)) {}

  bool is_common() const override { return true; }
  void meet(const char* what) override {
    exchange([what](const Communicator& ranks) { ranks.barrier({.tag = what}); });
  }
  void note_change() override { noted_ = digest_of_begins(); }
  bool is_unmodified() const override { return digest_of_begins() == noted_; }

 private:
  // A digest of the first cache line of every parameter. A step of an optimizer changes some of these lines, so it
  // changes the digest.
  std::uint64_t digest_of_begins() const {
    constexpr std::size_t kLine = 64;
    const auto* const values = static_cast<const std::byte*>(values_.const_data_ptr());
    const auto size = static_cast<std::size_t>(values_.element_size());
    std::uint64_t digest = 0;
    for (const Extent& parameter : parameters_) {
      const std::size_t bytes = std::min(kLine, static_cast<std::size_t>(parameter.numel) * size);
      digest = digest * 31 + format::hash64(values + static_cast<std::size_t>(parameter.offset) * size, bytes);
    }
    return digest;
  }

  at::Tensor values_;
  std::vector<Extent> parameters_;
  std::uint64_t noted_ = 0;
};

class ExchangedValues final : public RangeValues {
 public:
  ExchangedValues(Shares shares, at::Tensor values) : RangeValues(std::move(shares)), values_(std::move(values)) {}

  void publish(const char* what) override {
    exchange([&](const Communicator& ranks) {
      const at::Tensor own = values_.narrow(0, shares()->begin(), shares()->end() - shares()->begin());
      CallList calls;
      calls.all_gather_v(own.const_data_ptr(), values_.mutable_data_ptr(), shares()->sizes(),
                         to_data_type(values_.scalar_type()), {.tag = what, .after = stream_of(values_)});
      run_calls(ranks, calls, values_);
    });
  }

 private:
  at::Tensor values_;
};

class GatheredValues final : public RangeValues {
 public:
  GatheredValues(Shares shares, std::int64_t count, at::ScalarType type, const at::Device& device)
      : RangeValues(std::move(shares)), whole_(count, type, device) {}

  TransientFlat* whole() const override { return &whole_; }
  void publish(const char*) override { whole_.forget(); }

 private:
  mutable TransientFlat whole_;
};

}  // namespace

std::shared_ptr<RangeValues> make_range_values(const layout::Placement& placement, std::optional<Shares> shares,
                                               const at::Tensor& values, std::vector<Extent> parameters) {
  if (!shares) return std::make_shared<RangeValues>(std::nullopt);
  if (placement.residence.is_common) {
    return std::make_shared<CommonValues>(*std::move(shares), values, std::move(parameters));
  }
  if (placement.whole == layout::Whole::kAlways) return std::make_shared<ExchangedValues>(*std::move(shares), values);
  return std::make_shared<GatheredValues>(*std::move(shares), values.numel(), values.scalar_type(), values.device());
}

}  // namespace reigen::tensor
