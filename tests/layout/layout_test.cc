#include "reigen/layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "layout/packing.h"
#include "reigen/base/error.h"
#include "reigen/layout/choose.h"

namespace reigen::layout {
namespace {

using format::TensorType;

// A model with tensors of every kind: scalar, empty, larger than a block, of another type, frozen, of integers.
ModelSpec some_model() {
  ModelSpec model{.units = {"first", "second"}};
  model.tensors = {{.name = "embedding", .shape = {300, 64}},
                   {.name = "a.weight", .shape = {130, 127}, .unit = 0},
                   {.name = "a.bias", .shape = {127}, .unit = 0},
                   {.name = "a.scale", .shape = {}, .unit = 0},
                   {.name = "b.weight", .shape = {200, 100}, .type = TensorType::kBF16, .unit = 1},
                   {.name = "b.none", .shape = {0, 3}, .unit = 1},
                   {.name = "b.frozen", .shape = {40, 50}, .trainable = false, .unit = 1},
                   {.name = "table", .shape = {9}, .type = TensorType::kI64, .trainable = false, .packs = false},
                   {.name = "head", .shape = {64, 10}}};
  return model;
}

std::vector<StateSpec> adam() {
  return {{.name = "exp_avg", .type_of_16_bits = TensorType::kF32},
          {.name = "exp_avg_sq", .type_of_16_bits = TensorType::kF32},
          {.name = "master", .type_of_16_bits = TensorType::kF32, .of_16_bits_only = true},
          {.name = "step", .type = TensorType::kF32, .type_of_16_bits = TensorType::kF32, .is_scalar = true}};
}

std::vector<Axis> ranks(int count) { return {{"dp_shard", count}}; }

const std::vector<Sharding> kShardings{Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients,
                                       Sharding::kParameters};

struct Case {
  Sharding sharding;
  std::vector<Axis> axes;
  bool common;
  bool splits;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  const std::vector<std::vector<Axis>> grids{ranks(1),
                                             ranks(2),
                                             ranks(3),
                                             ranks(4),
                                             {{"dp_replicate", 2}, {"dp_shard", 3}},
                                             {{"dp_replicate", 3}, {"dp_shard", 1}},
                                             {{"dp_shard", 2}, {"tp", 3}},
                                             {{"pp", 2}, {"dp_replicate", 2}, {"dp_shard", 2}, {"tp", 2}}};
  for (const Sharding sharding : kShardings) {
    for (const auto& axes : grids) {
      for (const bool common : {false, true}) {
        const bool has_tp = std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.name == "tp"; });
        result.push_back({sharding, axes, common, has_tp});
      }
    }
  }
  return result;
}

Layout layout_of(const Case& one) {
  Choices choices{.sharding = one.sharding, .axes = one.axes, .states = adam(), .group_bytes = 70'000};
  if (one.splits) choices.splits = {{"a.weight", {"tp", 1}}, {"a.bias", {"tp", 0}}, {"head", {"tp", 0}}};
  ModelSpec model = some_model();
  const bool has_stages = one.axes.front().name == "pp";
  if (has_stages) {
    for (TensorSpec& tensor : model.tensors) tensor.stage = tensor.unit == 0 || tensor.name == "embedding" ? 0 : 1;
  }
  return choose(std::move(model), choices, {.shares_memory = one.common});
}

std::string text_of(const Case& one) {
  std::string text = to_text(one.sharding);
  for (const Axis& axis : one.axes) text += " " + axis.name + std::to_string(axis.size);
  return text + (one.common ? " common" : "");
}

// ---- Parts

TEST(Layout, WhatRanksGiveToACheckpointIsEveryElementOnce) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(text_of(one));
    const Layout layout = layout_of(one);
    for (std::size_t i = 0; i < layout.model().tensors.size(); ++i) {
      const TensorSpec& tensor = layout.model().tensors[i];
      for (const Role role : {Role::kValue, Role::kState}) {
        if (role == Role::kState && !tensor.trainable) continue;  // a frozen tensor has no state
        std::vector<int> times(static_cast<std::size_t>(numel(tensor.shape)));
        for (int rank = 0; rank < layout.ranks(); ++rank) {
          const Part part = layout.given_by(i, role, layout.coordinates_of(rank));
          check_part(tensor.name, tensor.shape, part);
          Runs runs(tensor.shape, part);
          while (const auto run = runs.next()) {
            for (std::int64_t k = 0; k < run->count; ++k) times[static_cast<std::size_t>(run->global + k)] += 1;
          }
        }
        EXPECT_EQ(std::count(times.begin(), times.end(), 1), std::ssize(times)) << tensor.name;
      }
    }
  }
}

TEST(Layout, RanksThatDifferInAReplicatedAxisHaveTheSame) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(text_of(one));
    const Layout layout = layout_of(one);
    for (std::size_t i = 0; i < layout.model().tensors.size(); ++i) {
      for (const Role role : {Role::kValue, Role::kGradient, Role::kState}) {
        for (std::size_t axis = 0; axis < layout.axes().size(); ++axis) {
          if (layout.placement(i, role).along[axis].kind != AlongKind::kReplicate) continue;
          for (int rank = 0; rank < layout.ranks(); ++rank) {
            Coordinates at = layout.coordinates_of(rank);
            const Part here = layout.part_of(i, role, at);
            at[axis] = 0;
            EXPECT_EQ(here, layout.part_of(i, role, at));
          }
        }
      }
    }
  }
}

TEST(Layout, ATensorParallelShardIsABoxCutInNearlyEqualChunks) {
  const Choices choices{.axes = {{"tp", 3}}, .splits = {{"a.weight", {"tp", 0}}, {"b.none", {"tp", 1}}}};
  const Layout layout = choose(some_model(), choices, {});
  const auto at = [&](int c) { return layout.part_of(1, Role::kValue, {c}); };
  EXPECT_EQ(at(0), (Part{.offset = {0, 0}, .shape = {44, 127}, .first = 0, .count = 44 * 127}));
  EXPECT_EQ(at(1), (Part{.offset = {44, 0}, .shape = {43, 127}, .first = 0, .count = 43 * 127}));
  EXPECT_EQ(at(2), (Part{.offset = {87, 0}, .shape = {43, 127}, .first = 0, .count = 43 * 127}));
  EXPECT_EQ(layout.part_of(5, Role::kValue, {2}).shape, (Shape{0, 1}));
}

TEST(Layout, ADimensionIsCutInWholeBlocks) {
  for (const std::int64_t block : {1, 3, 7}) {
    for (const int count : {1, 2, 3, 5}) {
      const std::int64_t size = 11 * block;
      std::int64_t end = 0;
      for (int i = 0; i < count; ++i) {
        const auto [begin, chunk] = chunk_of(size, block, i, count);
        EXPECT_EQ(begin, end);
        EXPECT_EQ(chunk % block, 0);
        EXPECT_EQ(chunk / block, 11 / count + (i < 11 % count ? 1 : 0));
        end = begin + chunk;
      }
      EXPECT_EQ(end, size);
    }
  }
}

TEST(Layout, SectionsOfADimensionAreDividedEach) {
  ModelSpec model{.tensors = {{.name = "qkv", .shape = {3 * 10, 4}}}};
  const Choices choices{.axes = {{"tp", 2}}, .splits = {{"qkv", {.axis = "tp", .block = 2, .sections = 3}}}};
  const Layout layout = choose(model, choices, {});
  std::vector<int> holders(120);
  for (int c = 0; c < 2; ++c) {
    const Part part = layout.box_of(0, {c});
    EXPECT_EQ(local_shape({30, 4}, part), (Shape{c == 0 ? 18 : 12, 4}));
    Runs runs({30, 4}, part);
    while (const auto run = runs.next()) {
      for (std::int64_t i = 0; i < run->count; ++i) holders[static_cast<std::size_t>(run->global + i)] += c + 1;
    }
  }
  for (std::size_t i = 0; i < holders.size(); ++i) EXPECT_EQ(holders[i], i / 4 % 10 < 6 ? 1 : 2) << i;
  EXPECT_THROW(choose(model, {.axes = {{"tp", 2}}, .splits = {{"qkv", {.axis = "tp", .block = 4, .sections = 3}}}}, {}),
               InvalidArgument);
}

TEST(Layout, AFlatShareOfATensorParallelShardIsARunInItsBox) {
  const Choices choices{
      .sharding = Sharding::kParameters, .axes = {{"dp_shard", 2}, {"tp", 2}}, .splits = {{"w", {"tp", 1}}}};
  const Layout layout = choose({.tensors = {{.name = "w", .shape = {512, 256}}}}, choices, {});
  const Part part = layout.part_of(0, Role::kValue, {1, 1});
  EXPECT_EQ(part.offset, (Shape{0, 128}));
  EXPECT_EQ(part.shape, (Shape{512, 128}));
  EXPECT_EQ(part.first, 2 * kBlockElements);  // the tensor has four blocks
  EXPECT_EQ(part.count, 2 * kBlockElements);
}

// ---- Buffers

TEST(Layout, BuffersAreAlignedCutAtBlocksAndHaveSpareElements) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(text_of(one));
    const Layout layout = layout_of(one);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      std::set<std::size_t> seen;
      for (const Range& range : layout.ranges(layout.coordinates_of(rank))) {
        const auto unit = static_cast<std::int64_t>(64 / format::size_of(range.type));
        std::int64_t end = 0;
        std::set<std::int64_t> blocks{0, range.elements};
        for (std::size_t i = 0; i < range.tensors.size(); ++i) {
          EXPECT_TRUE(seen.insert(range.tensors[i]).second);
          EXPECT_EQ(layout.model().tensors[range.tensors[i]].type, range.type);
          EXPECT_EQ(range.offsets[i] % unit, 0);
          EXPECT_GE(range.offsets[i], end);
          end = range.offsets[i] + numel(range.shapes[i]) + 1;
          for (std::int64_t at = 0; at < numel(range.shapes[i]); at += kBlockElements)
            blocks.insert(range.offsets[i] + at);
        }
        EXPECT_LE(end, range.elements);
        EXPECT_EQ(range.elements % unit, 0);
        EXPECT_TRUE(std::is_sorted(range.bounds.begin(), range.bounds.end()));
        for (const std::int64_t bound : range.bounds) EXPECT_TRUE(blocks.contains(bound)) << bound;
      }
    }
  }
}

TEST(Layout, SharesDifferByLessThanABlock) {
  ModelSpec model;
  for (int i = 0; i < 40; ++i) model.tensors.push_back({.name = std::to_string(i), .shape = {30 + 7 * i, 500}});
  const Layout layout = choose(std::move(model), {.sharding = Sharding::kOptimizer, .axes = ranks(7)}, {});
  const std::vector<Range> all = layout.ranges({0});
  ASSERT_EQ(all.size(), 1U);
  const std::int64_t mean = all[0].elements / 7;
  for (int q = 0; q < 7; ++q) EXPECT_LE(std::abs(all[0].share_elements(q) - mean), kBlockElements + 64);
}

TEST(Layout, UnitsHaveBuffersOfTheirOwnWhereGradientsAreDivided) {
  const Layout layout = layout_of({Sharding::kParameters, ranks(2), false, false});
  std::vector<std::size_t> units;
  for (const Range& range : layout.ranges({0})) units.push_back(range.unit);
  // Trainable buffers: first, second (two types), embedding, head. Frozen: second. The integers are in no buffer.
  EXPECT_EQ(units, (std::vector<std::size_t>{0, 1, 1, kNoUnit, kNoUnit, 1}));
  EXPECT_FALSE(layout.is_packed(7));
  EXPECT_EQ(layout_of({Sharding::kOptimizer, ranks(2), false, false}).ranges({0}).size(), 2U);  // two types
}

// ---- Bytes

// The table of ZeRO, for sizes that divide evenly: N fp32 elements, two states.
TEST(Layout, BytesAreThoseOfTheTable) {
  constexpr std::int64_t kElements = 8 * kBlockElements;
  constexpr std::int64_t kPad = 64;  // bytes of spare elements after the only tensor
  const ModelSpec model{.tensors = {{.name = "w", .shape = {8, kBlockElements}}}};
  const std::vector<StateSpec> states{{.name = "a"}, {.name = "b"}};
  const std::int64_t whole = 4 * kElements + kPad;
  const std::int64_t share = kElements;  // the bytes of a share on 4 ranks
  struct Row {
    Sharding sharding;
    bool common;
    std::int64_t values, gradients, states;
  };
  const std::int64_t row = whole + 4 * kElements;  // including the spare block
  const Row table[] = {
      {Sharding::kNone, false, whole, whole, 2 * whole},       {Sharding::kNone, true, whole, whole, 2 * whole},
      {Sharding::kOptimizer, false, whole, whole, 2 * share},  {Sharding::kOptimizer, true, share, whole, 2 * share},
      {Sharding::kGradients, false, whole, share, 2 * share},  {Sharding::kGradients, true, share, row, 2 * share},
      {Sharding::kParameters, false, share, share, 2 * share}, {Sharding::kParameters, true, share, share, 2 * share}};
  for (const Row& one : table) {
    SCOPED_TRACE(std::string(to_text(one.sharding)) + (one.common ? " common" : ""));
    const Layout layout =
        choose(model, {.sharding = one.sharding, .axes = ranks(4), .states = states}, {.shares_memory = one.common});
    EXPECT_EQ(layout.bytes(Role::kValue, {1}), one.values);
    EXPECT_EQ(layout.bytes(Role::kGradient, {1}), one.gradients);
    EXPECT_EQ(layout.bytes(Role::kState, {1}), one.states);
  }
}

TEST(Layout, RanksTogetherHaveWhatIsDividedOnce) {
  for (const int count : {1, 2, 3, 4}) {
    const Layout alone = layout_of({Sharding::kNone, ranks(1), false, false});
    const Layout layout = layout_of({Sharding::kParameters, ranks(count), false, false});
    std::int64_t packed = 0;  // bytes of all buffers, with the padding of sharded buffers
    for (const Range& range : layout.ranges({0})) {
      packed += range.elements * static_cast<std::int64_t>(format::size_of(range.type));
    }
    std::int64_t sum = 0;
    for (int rank = 0; rank < count; ++rank) sum += layout.bytes(Role::kValue, {rank});
    const std::int64_t integers = 9 * 8;
    if (count > 1) {
      EXPECT_EQ(sum, packed + count * integers);
    } else {
      EXPECT_EQ(sum, alone.bytes(Role::kValue, {0}));
    }
  }
}

TEST(Layout, StatesOf16BitTensorsMayHaveAnotherTypeAndMasters) {
  const Layout layout = layout_of({Sharding::kNone, ranks(1), false, false});
  std::int64_t expected = 0;
  for (const Range& range : layout.ranges({0})) {
    expected += (range.type == TensorType::kBF16 ? 3 : 2) * 4 * range.elements;
    expected += 4 * static_cast<std::int64_t>(range.tensors.size());
  }
  EXPECT_EQ(layout.bytes(Role::kState, {0}), expected);
}

TEST(Layout, WhatIsOffloadedIsOnTheDisk) {
  for (const Sharding sharding : kShardings) {
    for (const bool common : {false, true}) {
      const Layout layout = choose(
          some_model(), {.sharding = sharding, .axes = ranks(2), .states = {{.name = "momentum"}}, .offload = true},
          {.shares_memory = common});
      const auto on_disk = [&](Role role) { return layout.bytes(role, {0}, Medium::kDisk); };
      EXPECT_EQ(on_disk(Role::kState), layout.bytes(Role::kState, {0}));
      EXPECT_EQ(on_disk(Role::kGradient), 0);
      const bool values_go = sharding == Sharding::kParameters || (common && sharding != Sharding::kNone);
      EXPECT_EQ(on_disk(Role::kValue) > 0, values_go) << to_text(sharding) << common;
    }
  }
}

TEST(Layout, StatesOfAModelOnAGpuAreOffloadedToPinnedMemory) {
  for (const Sharding sharding : kShardings) {
    const Layout layout = choose(
        some_model(), {.sharding = sharding, .axes = ranks(2), .states = {{.name = "momentum"}}, .offload = true},
        {.has_model_on_gpu = true});
    EXPECT_EQ(layout.bytes(Role::kState, {0}, Medium::kPinned), layout.bytes(Role::kState, {0})) << to_text(sharding);
    for (const Role role : {Role::kValue, Role::kGradient}) {
      EXPECT_EQ(layout.bytes(role, {0}, Medium::kDevice), layout.bytes(role, {0})) << to_text(sharding);
    }
  }
}

TEST(Layout, TrafficIsThatOfTheTable) {
  const ModelSpec model{.tensors = {{.name = "w", .shape = {8, kBlockElements}}}};
  const std::int64_t bytes = 4 * 8 * kBlockElements + 64;
  const auto traffic = [&](Sharding sharding, bool common = false, int micro_batches = 1) {
    return choose(model, {.sharding = sharding, .axes = ranks(4)}, {.shares_memory = common})
        .traffic({0}, micro_batches);
  };
  const std::int64_t once = bytes * 3 / 4;
  EXPECT_EQ(traffic(Sharding::kNone).gradients, 2 * once);
  EXPECT_EQ(traffic(Sharding::kNone).values, 0);
  EXPECT_EQ(traffic(Sharding::kOptimizer).values, once);
  EXPECT_EQ(traffic(Sharding::kGradients).gradients, once);
  EXPECT_EQ(traffic(Sharding::kParameters).gradients, once);
  EXPECT_EQ(traffic(Sharding::kParameters).values, 2 * once);
  EXPECT_EQ(traffic(Sharding::kParameters, false, 3).values, 6 * once);
  EXPECT_EQ(traffic(Sharding::kParameters, false, 3).gradients, once);
  EXPECT_EQ(traffic(Sharding::kOptimizer, false, 3).values, once);
  EXPECT_EQ(traffic(Sharding::kGradients, true).gradients, 0);
  EXPECT_EQ(traffic(Sharding::kGradients, true).values, 0);
}

// ---- Choices

TEST(Layout, AutoDividesGradientsWhereNothingTravelsForIt) {
  const Machine one_memory{.shares_memory = true};
  EXPECT_EQ(sharding_of({.sharding = {}, .axes = ranks(4)}, one_memory), Sharding::kGradients);
  EXPECT_EQ(sharding_of({.sharding = {}, .axes = ranks(4)}, {}), Sharding::kNone);
  EXPECT_EQ(sharding_of({.sharding = {}, .axes = ranks(4), .buckets = true}, one_memory), Sharding::kNone);
}

TEST(Layout, ImpossibleChoicesAreRefusedByName) {
  const auto message = [](const Choices& choices) {
    try {
      choose(some_model(), choices, {});
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  using testing::HasSubstr;
  EXPECT_THAT(message({.axes = {{"dp_shard", 0}}}), HasSubstr("dp_shard 0"));
  EXPECT_THAT(message({.axes = {{"tp", 2}, {"tp", 2}}}), HasSubstr("twice"));
  EXPECT_THAT(message({.axes = {{"tp", 2}}, .splits = {{"a.wieght", {"tp", 0}}}}), HasSubstr("a.wieght"));
  EXPECT_THAT(message({.axes = {{"tp", 2}}, .splits = {{"a.bias", {"tp", 1}}}}), HasSubstr("shape [127]"));
  EXPECT_THAT(message({.axes = {{"tp", 2}}, .splits = {{"a.bias", {"cp", 0}}}}), HasSubstr("no such axis"));
  EXPECT_THAT(message({.axes = ranks(2), .splits = {{"a.bias", {"dp_shard", 0}}}}), HasSubstr("another way"));
}

TEST(Layout, TheTextSaysWhoHasWhat) {
  EXPECT_EQ(layout_of({Sharding::kParameters, {{"dp_replicate", 2}, {"dp_shard", 3}}, false, false}).to_text(),
            "dp_replicate 2 x dp_shard 3: values replicate x flat, memory, whole while its unit runs; gradients "
            "replicate x flat, memory, whole while its unit runs; states replicate x flat, memory");
}

}  // namespace
}  // namespace reigen::layout
