#include "parallel/pipeline/last_stage.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::parallel {
LastStage::LastStage(const nn::SkipConnections& skips, std::size_t first, nn::Between arrived)
    : skips_(skips), first_(first), arrived_(std::move(arrived)), seen_(skips.begin({})) {}

// Other ranks run the units before one after the other, so nothing that lies between them would be computed.
void LastStage::check_input(const nn::Unit& unit, std::size_t number, const nn::Carry& input) const {
  const auto refused = [&](const std::string& got, const std::string& expected) {
    return InvalidArgument(
        Report{.what = fmt::format("[pipeline] unit {} does not get what the units before it returned", unit.name()),
               .got = got,
               .expected = expected,
               .fix = "compute nothing between units: put it into a unit; give fold() the same skip connections as "
                      "pipeline()"});
  };
  const nn::Carry& carry = seen_.carry;
  const std::vector<std::size_t> taken = skips_.taken_by(number);
  const auto counted = [](std::size_t count) { return base::counted(static_cast<std::int64_t>(count), "tensor"); };
  if (input.size() != carry.size() + taken.size()) {
    throw refused(counted(input.size()), fmt::format("{}: {} of the unit before and {} of skip connections",
                                                     counted(carry.size() + taken.size()), carry.size(), taken.size()));
  }
  for (std::size_t i = 0; i < carry.size(); ++i) {
    if (input[i].is_same(carry[i])) continue;
    throw refused(fmt::format("another tensor in place of tensor {} of the unit before", i), "what this unit returned");
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (input[carry.size() + i].is_same(seen_.skips[taken[i]])) continue;
    throw refused(fmt::format("another tensor in place of the skip connection from {}", skips_.names()[taken[i]].from),
                  "what this unit returned for it");
  }
}

nn::Carry LastStage::in_place_of_output(std::size_t number, nn::Carry carry) const {
  const std::size_t given = skips_.given_by(number);
  // A unit that gives a tensor returns one for the next unit too. How many units of other ranks return is known only of
  // the last one.
  std::size_t count = given > 0 && carry.empty() ? 1 : carry.size();
  if (number + 1 == first_) count = arrived_.carry.size();
  carry.resize(std::min(count, carry.size()));
  while (carry.size() < count + given) carry.push_back(at::empty({0}));
  return carry;
}

nn::Carry LastStage::call(const nn::Unit& unit, std::size_t number, const nn::Carry& input,
                          const nn::Unit::Forward& inner) {
  if (number > 0) check_input(unit, number, input);
  if (number == 0) input_ = input;
  const nn::Carry carry = number == 0 ? input : seen_.carry;
  skips_.take_input(number, seen_);
  nn::Carry output;
  if (number < first_) {
    output = in_place_of_output(number, carry);
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
