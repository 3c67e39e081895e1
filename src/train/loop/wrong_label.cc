#include "train/loop/wrong_label.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <optional>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::train {

namespace {

// "Target 7 is out of bounds." gives 7.
std::optional<std::int64_t> value_in(const c10::Error& error) {
  constexpr std::string_view kFront = "Target ";
  constexpr std::string_view kEnd = " is out of bounds";
  const std::string text = error.what_without_backtrace();
  const auto begin = text.find(kFront);
  const auto end = text.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end <= begin + kFront.size()) return std::nullopt;
  return base::parse<std::int64_t>(std::string_view(text).substr(begin + kFront.size(), end - begin - kFront.size()));
}

}  // namespace

void throw_if_wrong_label(const c10::Error& error, const at::Tensor& target, std::span<const std::int64_t> indices,
                          const std::string& data) {
  const auto value = value_in(error);
  if (!value || !target.defined() || target.is_floating_point() || target.dim() == 0) return;
  for (std::int64_t row = 0; row < target.size(0) && static_cast<std::size_t>(row) < indices.size(); ++row) {
    if (!target[row].eq(*value).any().item<bool>()) continue;
    throw DataError(
        Report{.what = fmt::format("the label of sample {} of {} is outside of the model's classes",
                                   indices[static_cast<std::size_t>(row)], data),
               .got = std::to_string(*value),
               .expected = "at least 0 and below the number of the model's outputs",
               .fix = "give the model more classes, or correct the label; labels that count from 1 are read with "
                      "data::OpenOptions::label_offset or packed with --label-offset 1"});
  }
}

}  // namespace reigen::train
