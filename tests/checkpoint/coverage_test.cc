#include "checkpoint/coverage.h"

#include <gmock/gmock.h>

#include <random>

#include "checkpoint/layouts.h"

namespace reigen::checkpoint {
namespace {

using testing::HasSubstr;

std::optional<std::string> miss(const Shape& tensor, const std::vector<Part>& parts) {
  std::vector<const Part*> pointers;
  for (const Part& part : parts) pointers.push_back(&part);
  return what_parts_miss(tensor, pointers);
}

bool is_each_once(const Shape& tensor, const std::vector<Part>& parts) {
  std::vector<int> times(static_cast<std::size_t>(layout::numel(tensor)));
  for (const Part& part : parts) {
    layout::Runs runs(tensor, part);
    while (const auto run = runs.next()) {
      for (std::int64_t i = 0; i < run->count; ++i) ++times[static_cast<std::size_t>(run->global + i)];
    }
  }
  return std::all_of(times.begin(), times.end(), [](int one) { return one == 1; });
}

TEST(Coverage, IsWhatCountingSays) {
  std::mt19937 random(1);  // NOLINT: the test needs the same numbers each time
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  int made_up = 0;
  constexpr int kRounds = 6000;
  for (int round = 0; round < kRounds; ++round) {
    Shape tensor;
    for (std::int64_t i = below(4); i > 0; --i) tensor.push_back(1 + below(5));
    // Divide the tensor correctly: cut boxes into two boxes or into two flat runs.
    std::vector<Part> parts{layout::whole(tensor)};
    for (std::int64_t cuts = below(6); cuts > 0; --cuts) {
      const auto which = static_cast<std::size_t>(below(static_cast<std::int64_t>(parts.size())));
      Part first = parts[which];
      Part second = first;
      const bool is_box = first.first == 0 && first.count == layout::numel(first.shape);
      if (is_box && !tensor.empty() && below(2) == 0) {
        const auto axis = static_cast<std::size_t>(below(static_cast<std::int64_t>(tensor.size())));
        const std::int64_t at = below(first.shape[axis] + 1);
        first.shape[axis] = at;
        second.shape[axis] -= at;
        second.offset[axis] += at;
        first.count = layout::numel(first.shape);
        second.count = layout::numel(second.shape);
      } else {
        first.count = below(first.count + 1);
        second.first += first.count;
        second.count -= first.count;
      }
      parts[which] = first;
      parts.push_back(second);
    }
    // Then often make the division wrong.
    Part& changed = parts[static_cast<std::size_t>(below(static_cast<std::int64_t>(parts.size())))];
    switch (below(4)) {
      case 0: changed.first = below(layout::numel(changed.shape) - changed.count + 1); break;
      case 1: changed.count = below(layout::numel(changed.shape) - changed.first + 1); break;
      case 2: parts.push_back(changed); break;
      default: break;
    }
    const auto wrong = miss(tensor, parts);
    made_up += wrong ? 0 : 1;
    ASSERT_EQ(!wrong, is_each_once(tensor, parts)) << "round " << round << ": " << wrong.value_or("nothing");
  }
  EXPECT_GT(made_up, kRounds / 4);
  EXPECT_LT(made_up, 3 * kRounds / 4);
}

// A manifest may describe a huge tensor that is in no file. The check must still be fast.
TEST(Coverage, OfColumnsOfALongTensorCostsNothing) {
  const Shape tall{std::int64_t{1} << 56, 4};
  const auto columns = [&](std::int64_t begin, std::int64_t count) {
    const Shape shape{tall[0], count};
    return Part{.offset = {0, begin}, .shape = shape, .first = 0, .count = layout::numel(shape)};
  };
  EXPECT_EQ(miss(tall, {columns(0, 1), columns(3, 1), columns(1, 2)}), std::nullopt);
  EXPECT_THAT(miss(tall, {columns(0, 1), columns(2, 2)}).value_or(""), HasSubstr("a hole"));
  EXPECT_EQ(miss(tall, {columns(0, 2), columns(1, 2)}), "an overlap at element 1");
  Part late = columns(1, 3);
  late.first = 1;
  late.count -= 1;
  EXPECT_THAT(miss(tall, {columns(0, 1), late}).value_or(""), HasSubstr("a hole"));
  layout::Runs runs(tall, columns(1, 1));
  EXPECT_EQ(runs.next(), (layout::Run{1, 0, 1}));
  EXPECT_EQ(runs.next(), (layout::Run{5, 1, 1}));
}

TEST(Coverage, OfManyPartsEndsSoon) {
  constexpr std::int64_t kSide = 30000;
  std::vector<Part> parts;
  for (std::int64_t i = 0; i < kSide; ++i) parts.push_back({{i, 0}, {1, kSide}, 0, kSide});
  EXPECT_EQ(miss({kSide, kSide}, parts), std::nullopt);
  parts.resize(kSide / 2);
  for (std::int64_t i = 0; i < kSide; ++i) parts.push_back({{kSide / 2, i}, {kSide / 2, 1}, 0, kSide / 2});
  EXPECT_THAT(miss({kSide, kSide}, parts).value_or(""), HasSubstr("more parts side by side"));
}

}  // namespace
}  // namespace reigen::checkpoint
