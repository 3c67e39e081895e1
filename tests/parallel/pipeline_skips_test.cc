// Skip connections between units: a pipeline computes what one process computes, wherever the connection begins and
// ends.
#include "reigen/nn/skips.h"

#include <gmock/gmock.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "parallel/pipeline_net.h"
#include "parallel/pipeline_skip_net.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/optim/clip.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/text.h"

namespace reigen::parallel::pipeline_test {
namespace {

using schedule::Kind;
using schedule::Name;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;

TEST(PipelineSkips, FoldGivesEachUnitWhatItTakes) {
  const auto net = make_net();
  const at::Tensor x = input_of(0);
  const auto run = [&](std::size_t i, const nn::Carry& in) { return nn::call(net->parts[i], in); };
  const nn::Carry a = run(0, {x}), b = run(1, {a[0]}), c = run(2, {b[0]}), d = run(3, {c[0]});
  const nn::Carry e = run(4, {d[0], d[1], a[3]}), f = run(5, {e[0], c[1], a[4]}), g = run(6, {f[0], b[1]});
  EXPECT_TRUE(at::equal(net->forward(x), run(7, {g[0], a[1], a[2], g[1], c[2]})[0]));
}

TEST(PipelineSkips, EveryScheduleGivesTheGradientsOfOneProcess) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(::testing::PrintToString(one));
    expect_gradients_of_one_process(make_net, one.ranks, one.micro_batches,
                                    {.schedule = one.schedule, .virtual_stages = one.virtual_stages});
  }
}

TEST(PipelineSkips, UnitsMayComputeTheirActivationsAgain) {
  struct Checkpointed : SkipNet {
    Checkpointed() : SkipNet(8, kEnds) {}
    nn::ActivationCheckpoint recompute = nn::activation_checkpoint(parts, {.every = 1});
  };
  for (const Name name : {Name::kOneFOneB, Name::kInterleaved, Name::kZeroBubbleH1, Name::kZeroBubbleV}) {
    SCOPED_TRACE(to_text(name));
    expect_gradients_of_one_process(
        [] { return std::make_shared<Checkpointed>(); }, 2, 3,
        {.schedule = name, .virtual_stages = schedule::virtual_stages_of(name).most > 1 ? 2 : 1});
  }
}

TEST(PipelineSkips, AnyPlacementAndCutGivesTheGradientsOfOneProcess) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Drawn drawn(seed);
    SCOPED_TRACE(std::to_string(seed) + "\n" + to_text(drawn.own));
    expect_gradients_of_one_process([&] { return std::make_shared<SkipNet>(8, drawn.ends); }, drawn.own.ranks,
                                    drawn.own.micro_batches, {.own = drawn.own, .first_units = drawn.first_units});
  }
}

TEST(PipelineSkips, EvaluateGivesTheOutputOfOneProcess) {
  const auto one = make_net();
  const at::NoGradGuard no_grad;
  for (const std::vector<int>& placement : {std::vector<int>{0, 1, 1, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {1, 0, 0}}) {
    testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
      const auto net = make_net();
      const int stages = static_cast<int>(placement.size());
      const std::vector<schedule::Skip> skips =
          stages == 4 ? std::vector<schedule::Skip>{{0, 2}, {0, 3}, {1, 3}} : std::vector<schedule::Skip>{{0, 2}};
      const schedule::Schedule own = in_turn(placement, 1, skips);
      const Pipeline pipes = pipeline(
          *net, row_of(rank.world()),
          {.own = own,
           .first_units = stages == 4 ? std::vector<std::size_t>{0, 2, 4, 6} : std::vector<std::size_t>{0, 3, 6}});
      auto parallel = data_parallel(*net, rank.world(), {.pipeline = pipes});
      int used = 0;
      PipelineStep what = step_of(*net);
      what.loss = [&](int i) {
        EXPECT_TRUE(at::equal(net->forward(input_of(i)), one->forward(input_of(i))));
        ++used;
        return at::Tensor();
      };
      pipes.evaluate(parallel, 5, what);
      EXPECT_EQ(used, rank.rank() == placement.back() ? 5 : 0);
    });
  }
}

TEST(PipelineSkips, AScheduleOfTheUserNamesThem) {
  for (const char* const text : {R"(
ranks 3
stages 3
micro_batches 1
placement looped
skip 0 2
rank 0: F0.0 SEND_F0.0>1 SEND_F0.0>2 RECV_B0.0<2 RECV_B0.0<1 B0.0
rank 1: RECV_F1.0<0 F1.0 SEND_F1.0>2 RECV_B1.0<2 I1.0 SEND_B1.0>0 W1.0
rank 2: RECV_F2.0<0 RECV_F2.0<1 F2.0 I2.0 SEND_B2.0>0 SEND_B2.0>1 W2.0
)",
                                 R"(
ranks 3
stages 3
micro_batches 2
placement 2 1 0
skip 0 2
rank 0: F2.0 B2.0 F2.1 B2.1
rank 1: F1.0 F1.1 B1.0 B1.1
rank 2: F0.0 F0.1 I0.0 I0.1 W0.0 W0.1
)"}) {
    const schedule::Schedule own = schedule::parse_schedule(text);
    expect_gradients_of_one_process(
        [] {
          return std::make_shared<SkipNet>(3, Ends{{0, 2}, {0, 2}, {0, 2}});
        },
        3, own.micro_batches, {.own = own});
  }
}

// The tensor goes from the first rank to the last; the rank between sends its output and a gradient only.
TEST(PipelineSkips, UnitsBetweenDoNotSeeTheTensor) {
  testing::run_ranks({.ranks = 3}, [](Rank& rank) {
    SkipNet net(3, {{0, 2}});
    const Pipeline pipes = pipeline(net, row_of(rank.world()));
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    pipes.step(parallel, 1, step_of(net));
    const std::uint64_t tensor = input_of(0).nbytes(), head = 1024;
    EXPECT_EQ(pipes.last().bytes_sent, std::vector<std::uint64_t>({2 * (head + tensor), head + 2 * tensor,
                                                                   2 * tensor})[static_cast<std::size_t>(rank.rank())]);
  });
}

TEST(PipelineSkips, AForwardMayCallUnitsByItself) {
  struct ByHand : SkipNet {
    ByHand() : SkipNet(4, {{0, 3}, {1, 2}}) {}
    at::Tensor forward(const at::Tensor& x) {
      const nn::Carry a = nn::call(parts[0], nn::Carry{x});
      const nn::Carry b = nn::call(parts[1], nn::Carry{a[0]});
      const nn::Carry c = nn::call(parts[2], nn::Carry{b[0], b[1]});
      return nn::call(parts[3], nn::Carry{c[0], change_it ? a[1] * 2 : a[1]})[0];
    }
    bool change_it = false;
  };
  for (const int ranks : {1, 2, 4}) {
    expect_gradients_of_one_process([] { return std::make_shared<ByHand>(); }, ranks, 2, {});
  }
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    ByHand net;
    net.change_it = true;  // no rank would compute this product
    const Pipeline pipes = pipeline(net, row_of(rank.world()));
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    try {
      pipes.step(parallel, 1, step_of(net));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("unit block3 does not get what the units before"),
                                      HasSubstr("got: another tensor in place of the skip connection from block0"),
                                      HasSubstr("put it into a unit")));
    }
  });
}

// Ranks with the same stage have other samples; with and without a pipeline.
TEST(PipelineSkips, DataParallelRanksAverageTheirGradients) {
  const auto one = make_net();
  for (int i = 0; i < 8; ++i) (loss_of(one->forward(input_of(i)), i) / 2).backward();
  double squares = 0;
  for (const auto& [name, gradient] : gradients_of(*one)) squares += (gradient * gradient).sum().item<double>();
  for (const int stages : {1, 2}) {
    for (const Shard shard : {Shard::kNone, Shard::kGradients, Shard::kParameters}) {
      testing::run_ranks({.ranks = 2 * stages, .backend = shard == Shard::kNone ? "auto" : "tcp"}, [&](Rank& rank) {
        const auto net = make_net();
        const Mesh mesh(rank.world(), {{"pp", stages}, {"dp_shard", 2}});
        DataParallelOptions options{.shard = shard};
        if (stages > 1) options.pipeline = pipeline(*net, mesh);
        auto parallel = data_parallel(*net, rank.world(), options);
        const int first = 4 * mesh.coordinate("dp_shard");
        const auto loss = [&](int i) { return loss_of(net->forward(input_of(first + i)), first + i); };
        if (stages > 1) {
          options.pipeline.step(parallel, 4,
                                {.input = [&](int i) { return nn::Carry{input_of(first + i)}; }, .loss = loss});
        } else {
          parallel.prepare_forward();
          (loss(0) + loss(1) + loss(2) + loss(3)).backward();
        }
        EXPECT_NEAR(optim::gradient_norm(parallel.parameters()).norm, std::sqrt(squares), 1e-12);
      });
    }
  }
}

TEST(PipelineSkips, TimesOfUnitsIncludeThem) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const auto net = make_net();
    const std::vector<double> seconds = measure_units(net->units(), {input_of(0)}, rank.world(), net->skips());
    ASSERT_EQ(seconds.size(), 8U);
    for (const double one : seconds) EXPECT_GT(one, 0);
  });
}

std::string refused_with(const PipelineOptions& options, const Ends& ends = {}, int ranks = 3) {
  return common_refusal({.ranks = ranks}, [&](Rank& rank) {
    SkipNet net(4, ends);
    pipeline(net, row_of(rank.world()), options);
  });
}

TEST(PipelineSkips, WrongConnectionsAreRefusedOnAllRanks) {
  EXPECT_THAT(refused_with({.skips = {{"block0", "blok2"}}}),
              AllOf(HasSubstr("no unit has the name blok2"), HasSubstr("4 units"), HasSubstr("fix: write block2")));
  EXPECT_THAT(refused_with({.skips = {{"encoder", "block2"}}}), HasSubstr("the name of the unit (Unit::name())"));
  EXPECT_THAT(refused_with({.skips = {{"block3", "block1"}}}),
              AllOf(HasSubstr("from block3 to block1"), HasSubstr("got: block3 is unit 3, block1 is unit 1"),
                    HasSubstr("exchange the two names")));
  EXPECT_THAT(refused_with({.skips = {{"block1", "block1"}}}), HasSubstr("does not come after"));
  const auto own = [](const std::vector<schedule::Skip>& skips) {
    schedule::Schedule made = schedule::gpipe({.ranks = 3, .micro_batches = 1});
    made.skips = skips;
    return made;
  };
  const std::vector<std::size_t> cut{0, 1, 2};
  EXPECT_THAT(refused_with({.own = own({}), .first_units = cut}, {{0, 1}, {0, 3}}),
              AllOf(HasSubstr("does not have a skip connection of the model"),
                    HasSubstr("got: unit block0 in stage 0 gives unit block3 in stage 2"),
                    HasSubstr("expected: a schedule with skip 0 2"), HasSubstr("fix: give the schedule these lines")));
  EXPECT_THAT(refused_with({.own = own({{0, 2}}), .first_units = cut}, {{0, 1}, {2, 3}}),
              AllOf(HasSubstr("has a skip connection that the model does not have"), HasSubstr("got: skip 0 2"),
                    HasSubstr("no skip connections over a stage"), HasSubstr("PipelineOptions::skips")));
  EXPECT_EQ(refused_with({.own = own({{0, 2}}), .first_units = cut}, {{0, 3}}), "nothing");
  EXPECT_THAT(refused_with({.own = own({{0, 1}}), .first_units = cut}), HasSubstr("does not lead over a stage"));
}

TEST(PipelineSkips, RanksWithOtherConnectionsAreRefused) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    Net net(4);
    PipelineOptions options{.skips = {{"block0", "block2"}}};
    if (rank.rank() == 1) options.skips = {{"block0", "nobody"}};
    try {
      pipeline(net, row_of(rank.world()), options);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("options differ"), HasSubstr("nobody")));
    }
  });
}

// The error of a step, on every rank: thrown where it happens, and told to the others.
void expect_failure(const std::vector<nn::Skip>& skips, const ::testing::Matcher<std::string>& expected,
                    const std::function<nn::Carry(const nn::Carry&)>& giver) {
  testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
    Net net(4);
    net.parts[0] = nn::Unit("block0", net.named_children()["block0"], giver);
    const Pipeline pipes = pipeline(net, row_of(rank.world()), {.skips = skips});
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    PipelineStep step = step_of(net);
    step.loss = [&](int i) { return loss_of(nn::fold(net.parts, input_of(i), skips), i); };
    try {
      pipes.step(parallel, 2, step);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), expected);
    }
  });
}

TEST(PipelineSkips, AUnitThatReturnsNoTensorIsNamed) {
  const std::vector<nn::Skip> skips{{"block0", "block3"}, {"block0", "block1"}};
  const auto no_tensor = [](const std::string& to) {
    return AllOf(HasSubstr("from block0 to " + to), HasSubstr("the unit block0 returned no tensor for it"),
                 HasSubstr("expected: at least 3"), HasSubstr("return nn::Carry{y, extra}"));
  };
  expect_failure(skips, AllOf(no_tensor("block3"), HasSubstr("got: 1 tensor ")),
                 [](const nn::Carry& in) { return in; });
  expect_failure(skips, AllOf(no_tensor("block3"), HasSubstr("got: 2 tensors")), [](const nn::Carry& in) {
    return nn::Carry{in[0], in[0]};
  });
  expect_failure(skips, AllOf(no_tensor("block1"), HasSubstr("got: an undefined tensor")), [](const nn::Carry& in) {
    return nn::Carry{in[0], in[0], at::Tensor()};
  });
}

TEST(PipelineSkips, FoldRefusesWhatIsNoConnection) {
  Net net(4);
  const auto refusal = [&](const std::vector<nn::Unit>& units, const std::vector<nn::Skip>& skips) -> std::string {
    try {
      nn::fold(units, input_of(0), skips);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::vector<nn::Skip> skips{{"block0", "block3"}};
  EXPECT_THAT(refusal(net.parts, skips), HasSubstr("the unit block0 returned no tensor for it"));
  std::vector<nn::Unit> twice = net.parts;
  twice.push_back(net.parts[0]);
  EXPECT_THAT(refusal(twice, skips), AllOf(HasSubstr("several units have the name block0"),
                                           HasSubstr("got: units 0 and 4"), HasSubstr("a name of its own")));
  EXPECT_EQ(refusal(twice, {}), "nothing");  // without a skip connection a unit may run twice
  std::vector<nn::Unit> two = net.parts;
  two[3] = nn::Unit("block3", net.named_children()["block3"], [](const nn::Carry& in) {
    return nn::Carry{in[0], in[0]};
  });
  EXPECT_THAT(refusal(two, {}), HasSubstr("[unit block3]"));
}

TEST(PipelineSkips, AForwardWithoutTheConnectionsIsRefused) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    SkipNet net(4, {{0, 3}});
    const Pipeline pipes = pipeline(net, row_of(rank.world()));
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    PipelineStep step = step_of(net);
    step.loss = [&](int i) { return nn::fold(net.parts, nn::Carry{input_of(i)})[0].sum(); };
    try {
      pipes.step(parallel, 1, step);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("unit block1"), HasSubstr("got: 2 tensors"),
                                      HasSubstr("expected: 1 tensor: 1 of the unit before and 0 of skip connections"),
                                      HasSubstr("give fold() the same skip connections")));
    }
  });
}

}  // namespace
}  // namespace reigen::parallel::pipeline_test
