#include "parallel/pipeline/last_stage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace reigen::parallel {
namespace {

bool are_the_same(const nn::Carry& a, const nn::Carry& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& one, const at::Tensor& other) { return one.is_same(other); });
}

}  // namespace

LastStage::LastStage(const nn::SkipConnections& skips, std::size_t first, nn::Between arrived)
    : skips_(skips), first_(first), arrived_(std::move(arrived)), seen_(skips.begin({})) {}

nn::Carry LastStage::call(const nn::Unit& unit, std::size_t number, const nn::Carry& input,
                          const nn::Unit::Forward& inner) {
  nn::Carry output = number == 0 ? input : seen_.carry;
  const nn::Carry expected = skips_.take_input(number, seen_);
  // Other ranks run the units before one after the other, so nothing that lies between them would be computed.
  REIGEN_CHECK(
      number == 0 || are_the_same(input, expected),
      "[pipeline] the model's forward computes something between unit {} and the unit before\n  expected: each "
      "unit gets what the unit before returned, and the tensors of its skip connections\n  fix: put the "
      "computation into a unit; give fold() the same skip connections as pipeline()",
      unit.name());
  if (number < first_) {
    const std::size_t given = skips_.given_by(number);
    // As a unit that gives a tensor, it returns one for the next unit too.
    if (given > 0 && output.empty()) output.push_back(at::empty({0}));
    for (std::size_t i = 0; i < given; ++i) output.push_back(at::empty({0}));
  } else {
    ++ran_;
    if (number == first_) computed_ = arrived_;
    output = inner(number == 0 ? input : skips_.take_input(number, computed_));
    skips_.put_output(number, output, computed_);
  }
  skips_.put_output(number, output, seen_);
  return output;
}

}  // namespace reigen::parallel
