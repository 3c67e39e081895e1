#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "reigen/base/error.h"
#include "reigen/train/metrics.h"

namespace reigen::train {

namespace {

void require_classes(const char* what, const at::Tensor& scores, const at::Tensor& target) {
  if (scores.dim() == 2 && target.dim() == 1 && scores.size(0) == target.size(0) && scores.size(1) > 0) return;
  throw InvalidArgument(Report{.what = fmt::format("{}: the shapes do not fit together", what),
                               .got = fmt::format("scores of {} dimensions, target of {} numbers", scores.dim(),
                                                  target.defined() ? target.numel() : 0),
                               .expected = "scores [N, classes], target [N]",
                               .fix = "flatten() what has more dimensions"});
}

}  // namespace

BatchMean accuracy(const at::Tensor& scores, const at::Tensor& target, std::int64_t k) {
  const at::NoGradGuard no_grad;
  require_classes("accuracy", scores, target);
  if (k < 1 || k > scores.size(1)) {
    throw InvalidArgument(Report{.what = "accuracy: k is out of range",
                                 .got = fmt::format("{}", k),
                                 .expected = fmt::format("1 to {}, the number of classes", scores.size(1))});
  }
  const at::Tensor right =
      k == 1 ? scores.argmax(1).eq(target) : std::get<1>(scores.topk(k, 1)).eq(target.unsqueeze(1)).any(1);
  return {.sum = right.sum(), .count = target.ge(0).sum()};
}

ConfusionMatrix::ConfusionMatrix(const at::Tensor& scores, const at::Tensor& target) : classes_(scores.size(-1)) {
  const at::NoGradGuard no_grad;
  require_classes("ConfusionMatrix", scores, target);
  counts_.assign(static_cast<std::size_t>(classes_ * classes_), 0);
  const at::Tensor predicted = scores.argmax(1).to(at::kCPU, at::kLong).contiguous();
  const at::Tensor wanted = target.to(at::kCPU, at::kLong).contiguous();
  for (std::int64_t i = 0; i < wanted.size(0); ++i) {
    const std::int64_t row = wanted.const_data_ptr<std::int64_t>()[i];
    if (row < 0) continue;
    if (row >= classes_) {
      throw DataError(Report{.what = fmt::format("ConfusionMatrix: the target of row {} is no class", i),
                             .got = fmt::format("{}", row),
                             .expected = fmt::format("0 to {}", classes_ - 1)});
    }
    ++counts_[static_cast<std::size_t>(row * classes_ + predicted.const_data_ptr<std::int64_t>()[i])];
  }
}

std::int64_t ConfusionMatrix::count(std::int64_t target, std::int64_t predicted) const {
  if (target < 0 || target >= classes_ || predicted < 0 || predicted >= classes_) {
    throw InvalidArgument(Report{.what = "ConfusionMatrix: no such class",
                                 .got = fmt::format("target {}, predicted {}", target, predicted),
                                 .expected = fmt::format("0 to {}", classes_ - 1)});
  }
  return counts_[static_cast<std::size_t>(target * classes_ + predicted)];
}

void ConfusionMatrix::merge(const ConfusionMatrix& other) {
  if (other.classes_ == 0) return;
  if (classes_ == 0) {
    *this = other;
    return;
  }
  if (classes_ != other.classes_) {
    throw InvalidArgument(Report{.what = "ConfusionMatrix: another number of classes is added",
                                 .got = fmt::format("{}", other.classes_),
                                 .expected = fmt::format("{}", classes_)});
  }
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

double ConfusionMatrix::value() const {
  Mean right;
  for (std::int64_t row = 0; row < classes_; ++row) {
    for (std::int64_t column = 0; column < classes_; ++column) {
      const auto n = static_cast<double>(count(row, column));
      right.merge({.sum = row == column ? n : 0, .count = n});
    }
  }
  return right.value();
}

std::string ConfusionMatrix::bytes() const {
  return {reinterpret_cast<const char*>(counts_.data()), counts_.size() * sizeof(std::int64_t)};
}

void ConfusionMatrix::load(std::string_view bytes) {
  counts_.assign(bytes.size() / sizeof(std::int64_t), 0);
  if (!bytes.empty()) std::memcpy(counts_.data(), bytes.data(), counts_.size() * sizeof(std::int64_t));
  classes_ = 0;
  while (classes_ * classes_ < static_cast<std::int64_t>(counts_.size())) ++classes_;
  if (classes_ * classes_ == static_cast<std::int64_t>(counts_.size())) return;
  throw DataError(Report{.what = "ConfusionMatrix: its bytes are not those of a square",
                         .got = fmt::format("{} counts", counts_.size())});
}

}  // namespace reigen::train
