#include "nn/skip_connections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace reigen::nn {
namespace {

std::string text_of(const Skip& skip) { return fmt::format("from {} to {}", skip.from, skip.to); }

std::size_t number_of(const std::vector<Unit>& units, const std::string& name, const Skip& skip) {
  const auto has_name = [&](const Unit& unit) { return unit.name() == name; };
  const auto found = std::find_if(units.begin(), units.end(), has_name);
  if (found == units.end()) {
    std::vector<std::string> known;
    for (const Unit& unit : units) known.push_back(unit.name());
    const std::string meant = base::nearest(name, known);
    throw InvalidArgument(
        Report{.what = fmt::format("[skip connection {}] no unit has the name {}", text_of(skip), name),
               .got = name,
               .expected = fmt::format("a name of the model's {} units", units.size()),
               .fix = meant.empty() ? "write the name of the unit (Unit::name())" : "write " + meant});
  }
  const auto number = static_cast<std::size_t>(found - units.begin());
  const auto again = std::find_if(found + 1, units.end(), has_name);
  REIGEN_CHECK(
      again == units.end(),
      "[skip connection {}] several units have the name {}\n  got: units {} and {}   expected: one\n  fix: give "
      "each unit a name of its own",
      text_of(skip), name, number, again - units.begin());
  return number;
}

}  // namespace

SkipConnections::SkipConnections(const std::vector<Unit>& units, std::vector<Skip> skips) : names_(std::move(skips)) {
  for (const Skip& skip : names_) {
    const Ends& ends = ends_.emplace_back(Ends{number_of(units, skip.from, skip), number_of(units, skip.to, skip)});
    REIGEN_CHECK(ends.from < ends.to,
                 "[skip connection {}] the unit that takes does not come after the unit that gives\n  got: {} is unit "
                 "{}, {} is unit {}   expected: a tensor for a later unit\n  fix: exchange the two names, or the units",
                 text_of(skip), skip.from, ends.from, skip.to, ends.to);
  }
}

std::size_t SkipConnections::given_by(std::size_t unit) const {
  return static_cast<std::size_t>(
      std::count_if(ends_.begin(), ends_.end(), [&](const Ends& ends) { return ends.from == unit; }));
}

std::vector<std::size_t> SkipConnections::taken_by(std::size_t unit) const {
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i].to == unit) taken.push_back(i);
  }
  return taken;
}

Carry SkipConnections::take_input(std::size_t unit, Between& between) const {
  Carry input = std::exchange(between.carry, {});
  for (const std::size_t number : taken_by(unit)) input.push_back(std::exchange(between.skips[number], {}));
  return input;
}

void SkipConnections::put_output(std::size_t unit, Carry output, Between& between) const {
  const std::size_t given = given_by(unit);
  std::size_t next = output.size() - std::min(given, output.size());
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i].from != unit) continue;
    const bool is_there = output.size() > given && output[next].defined();
    REIGEN_CHECK(
        is_there,
        "[skip connection {}] the unit {} returned no tensor for it\n  got: {}   expected: at least {}: first "
        "what the next unit gets, then one for each skip connection\n  fix: let its forward return nn::Carry{{y, "
        "extra}}",
        text_of(names_[i]), names_[i].from,
        output.size() > given ? "an undefined tensor"
                              : base::counted(static_cast<std::int64_t>(output.size()), "tensor"),
        given + 1);
    between.skips[i] = std::move(output[next++]);
  }
  output.resize(output.size() - given);
  between.carry = std::move(output);
}

void SkipConnections::call(const std::vector<Unit>& units, std::size_t first, std::size_t end, Between& between) const {
  for (std::size_t i = first; i < end; ++i) put_output(i, nn::call(units[i], take_input(i, between)), between);
}

Carry fold(const std::vector<Unit>& units, Carry input, const std::vector<Skip>& skips) {
  const SkipConnections connections(units, skips);
  Between between = connections.begin(std::move(input));
  connections.call(units, 0, units.size(), between);
  return std::move(between.carry);
}

at::Tensor fold(const std::vector<Unit>& units, at::Tensor input, const std::vector<Skip>& skips) {
  Carry output = fold(units, Carry{std::move(input)}, skips);
  REIGEN_CHECK(output.size() == 1, "[unit {}] gave {} tensors\n  expected: one, as fold() with a tensor returns one",
               units.back().name(), output.size());
  return std::move(output.front());
}

}  // namespace reigen::nn
