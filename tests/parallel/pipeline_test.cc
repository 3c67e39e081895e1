// Pipelines: stages on several ranks compute what one process computes, and every fault names its stage.
#include "reigen/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "parallel/pipeline_net.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/without_memory.h"
#include "reigen/optim/clip.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/schedule/text.h"

namespace reigen::parallel::pipeline_test {
namespace {

using schedule::Name;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;

TEST(Pipelines, EveryScheduleGivesTheGradientsOfOneProcess) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(::testing::PrintToString(one));
    expect_gradients_of_one_process([] { return std::make_shared<Net>(8); }, one.ranks, one.micro_batches,
                                    {.schedule = one.schedule, .virtual_stages = one.virtual_stages});
  }
}

TEST(Pipelines, AStageHoldsItsUnitsOnly) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    Net net(4);
    const Pipeline pipes = pipeline(net, row_of(rank.world()), {.first_units = {0, 3}});
    EXPECT_EQ(pipes.module().parameters().size(), rank.rank() == 0 ? 12U : 4U);
    EXPECT_EQ(pipes.has_first_stage(), rank.rank() == 0);
    EXPECT_EQ(pipes.has_last_stage(), rank.rank() == 1);
    for (const auto& item : net.named_parameters()) {
      const bool is_last = item.key().starts_with("block3.");
      EXPECT_EQ(nn::has_no_memory(item.value()), is_last != (rank.rank() == 1)) << item.key();
      EXPECT_EQ(pipes.is_elsewhere(item.key() + ".exp_avg"), is_last != (rank.rank() == 1));
      EXPECT_EQ(pipes.gives(item.key()), is_last == (rank.rank() == 1));
    }
    EXPECT_EQ(pipes.gives("ema.updates"), rank.rank() == 0);
    EXPECT_FALSE(pipes.is_elsewhere("ema.updates"));
  });
}

// Each process computes the same samples, so the mean of the gradients is that of one process.
TEST(Pipelines, NormsCountEachParameterOnce) {
  const auto expected = expected_gradients(4, 2);
  double squares = 0;
  for (const auto& [name, gradient] : expected) squares += (gradient * gradient).sum().item<double>();
  testing::run_ranks({.ranks = 4}, [&](Rank& rank) {
    Net net(4);
    const Mesh mesh(rank.world(), {{"pp", 2}, {"dp_shard", 2}});
    const Pipeline pipes = pipeline(net, mesh);
    auto parallel = data_parallel(net, rank.world(), {.shard = Shard::kGradients, .pipeline = pipes});
    pipes.step(parallel, 2, step_of(net));
    EXPECT_NEAR(optim::gradient_norm(parallel.parameters()).norm, std::sqrt(squares), 1e-12);
  });
}

TEST(Pipelines, EvaluateRunsAnyNumberOfMicroBatches) {
  Net one(6);
  const at::NoGradGuard no_grad;
  testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
    Net net(6);
    // A placement of the user: 0 1 1 0.
    schedule::Schedule own{.ranks = 2, .micro_batches = 1, .placement = schedule::v_shaped(4, 2)};
    own.actions = {{{schedule::Kind::kForward, 0, 0},
                    {schedule::Kind::kForward, 3, 0},
                    {schedule::Kind::kBackward, 3, 0},
                    {schedule::Kind::kBackward, 0, 0}},
                   {{schedule::Kind::kForward, 1, 0},
                    {schedule::Kind::kForward, 2, 0},
                    {schedule::Kind::kBackward, 2, 0},
                    {schedule::Kind::kBackward, 1, 0}}};
    const Pipeline pipes = pipeline(net, row_of(rank.world()), {.own = own});
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    {
      const at::AutoGradMode with_gradients(true);
      pipes.step(parallel, 1, step_of(net));  // with its own schedule
    }
    int used = 0;
    pipes.evaluate(parallel, 5,
                   {.input = [](int i) { return nn::Carry{input_of(i)}; },
                    .loss =
                        [&](int i) {
                          EXPECT_TRUE(at::equal(net.forward(input_of(i)), one.forward(input_of(i))));
                          ++used;
                          return at::Tensor();
                        }});
    EXPECT_EQ(used, rank.rank() == 0 ? 5 : 0);
    EXPECT_EQ(pipes.last().micro_batches, 1);  // the report is that of the step
  });
}

TEST(Pipelines, AScheduleOfTheUserRuns) {
  const auto expected = expected_gradients(4, 2);
  const char* const kText = R"(
ranks 2
stages 2
micro_batches 2
placement 1 0
rank 1: F0.0 F0.1 I0.1 W0.1 B0.0
rank 0: F1.0 F1.1 B1.1 B1.0
)";
  testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
    Net net(4);
    const Pipeline pipes = pipeline(net, row_of(rank.world()), {.own = schedule::parse_schedule(kText)});
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    pipes.step(parallel, 2, step_of(net));
    for (const auto& [name, gradient] : gradients_of(pipes.module())) {
      EXPECT_LT((gradient - expected.at(name)).abs().max().item<double>(), 1e-13) << name;
    }
    try {
      pipes.step(parallel, 3, step_of(net));
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("another number of micro-batches"), HasSubstr("got: a step of 3")));
    }
  });
}

TEST(Pipelines, UnitsMayComputeTheirActivationsAgain) {
  const auto expected = expected_gradients(4, 3);
  for (const Name name : {Name::kOneFOneB, Name::kZeroBubbleH1, Name::kZeroBubbleV}) {
    testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
      Net net(4);
      const auto recompute = nn::activation_checkpoint(net.units(), {.every = 1});
      const Pipeline pipes = pipeline(net, row_of(rank.world()),
                                      {.schedule = name, .virtual_stages = schedule::virtual_stages_of(name).least});
      auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
      pipes.step(parallel, 3, step_of(net));
      for (const auto& [key, gradient] : gradients_of(pipes.module())) {
        EXPECT_LT((gradient - expected.at(key)).abs().max().item<double>(), 1e-13) << key;
      }
    });
  }
}

// A unit with a weight that it uses twice, a tensor that it passes on unchanged, and one without a gradient.
struct PairImpl : torch::nn::Module {
  nn::Carry forward(const nn::Carry& in) {
    const at::Tensor y = at::tanh(at::linear(at::linear(in[0], weight), weight));
    return {y * in[2].to(at::kDouble), in[1] + 0.5 * y, in[2]};
  }
  at::Tensor weight = register_parameter("weight", at::sin(at::arange(36, at::kDouble)).view({6, 6}));
};

TEST(Pipelines, StagesPassSeveralTensors) {
  const auto units_of = [](torch::nn::Module& model) {
    std::vector<nn::Unit> units;
    for (int i = 0; i < 4; ++i) {
      const std::string name = "pair" + std::to_string(i);
      units.emplace_back(name, model.register_module(name, std::make_shared<PairImpl>()));
    }
    return units;
  };
  const auto carry = [](int i) { return nn::Carry{input_of(i), input_of(i + 1).narrow(0, 0, 2), at::full({2, 1}, 2)}; };
  const auto start = [&](int i) {
    nn::Carry all = carry(i);
    all[0] = all[0].narrow(0, 0, 2);
    return all;
  };
  const auto loss = [](const nn::Carry& out) { return out[0].sum() + (out[1] * out[1]).sum(); };
  struct Model : torch::nn::Module {};
  Model whole;
  const auto whole_units = units_of(whole);
  for (int i = 0; i < 3; ++i) loss(nn::fold(whole_units, start(i))).backward();
  const auto expected = gradients_of(whole);
  for (const Name name : {Name::kOneFOneB, Name::kZeroBubbleH1}) {
    testing::run_ranks({.ranks = 4}, [&](Rank& rank) {
      Model model;
      const auto units = units_of(model);
      const Pipeline pipes = pipeline(model, row_of(rank.world()), {.schedule = name, .units = units});
      auto parallel = data_parallel(model, rank.world(), {.pipeline = pipes});
      pipes.step(parallel, 3, {.input = start, .loss = [&](int i) { return loss(nn::fold(units, start(i))); }});
      for (const auto& [key, gradient] : gradients_of(pipes.module())) {
        EXPECT_LT((gradient - expected.at(key)).abs().max().item<double>(), 1e-12) << key;
      }
    });
  }
}

// A unit whose second output depends on its weight alone, whose activation has a hook, and that passes a tensor on
// unchanged.
struct OddImpl : torch::nn::Module {
  nn::Carry forward(const nn::Carry& in) {
    at::Tensor h = at::linear(in[0], weight);
    if (h.requires_grad()) h.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
    return {at::tanh(h) + in[1].sum(), at::sin(table), in[2]};
  }
  at::Tensor weight = register_parameter("weight", at::sin(at::arange(36, at::kDouble)).view({6, 6}));
  at::Tensor table = register_parameter("table", at::cos(at::arange(5, at::kDouble)));
};

TEST(Pipelines, DividedBackwardsLoseNoGradientAndRunHooksOnce) {
  struct Model : torch::nn::Module {
    Model() {
      for (int i = 0; i < 4; ++i) {
        const std::string name = "odd" + std::to_string(i);
        units.emplace_back(name, register_module(name, std::make_shared<OddImpl>()));
      }
    }
    std::vector<nn::Unit> units;
  };
  // The third tensor requires a gradient, and goes through all stages.
  const at::Tensor memory = at::ones({6}, at::kDouble).requires_grad_(true);
  const auto start = [&](int i) { return nn::Carry{input_of(i), at::ones({5}, at::kDouble), memory}; };
  const auto loss = [](const nn::Carry& out) { return (out[0] * out[2]).sum() + (out[1] * out[1]).sum(); };
  Model whole;
  for (int i = 0; i < 3; ++i) loss(nn::fold(whole.units, start(i))).backward();
  const auto expected = gradients_of(whole);
  for (const Name name : {Name::kOneFOneB, Name::kZeroBubbleH1, Name::kZeroBubbleV}) {
    SCOPED_TRACE(to_text(name));
    const int stages = schedule::virtual_stages_of(name).least;
    for (const int ranks : {2, 4 / stages}) {
      testing::run_ranks({.ranks = ranks}, [&](Rank& rank) {
        Model model;
        const Pipeline pipes =
            pipeline(model, row_of(rank.world()), {.schedule = name, .virtual_stages = stages, .units = model.units});
        auto parallel = data_parallel(model, rank.world(), {.pipeline = pipes});
        const at::Tensor own = at::ones({6}, at::kDouble).requires_grad_(true);
        const auto begin = [&](int i) { return nn::Carry{input_of(i), at::ones({5}, at::kDouble), own}; };
        pipes.step(parallel, 3, {.input = begin, .loss = [&](int i) { return loss(nn::fold(model.units, begin(i))); }});
        const auto found = gradients_of(pipes.module());
        EXPECT_EQ(found.size(), pipes.module().parameters().size());
        for (const auto& [key, gradient] : found) {
          EXPECT_LT((gradient - expected.at(key)).abs().max().item<double>(), 1e-12) << key;
        }
      });
    }
  }
}

// Rank 0 has stages 0 and 2, and stage 0, whose backward is the last, trains nothing.
TEST(Pipelines, GradientsAreAveragedIfTheLastBackwardTrainsNothing) {
  const auto freeze = [](Net& net) {
    for (const char* name : {"block0", "block1"}) {
      for (at::Tensor one : net.named_children()[name]->parameters()) one.requires_grad_(false);
    }
  };
  Net one(8);
  freeze(one);
  for (int i = 0; i < 8; ++i) (loss_of(one.forward(input_of(i)), i) / 2).backward();
  const auto expected = gradients_of(one);
  for (const Shard shard : {Shard::kNone, Shard::kGradients}) {
    testing::run_ranks({.ranks = 4, .backend = shard == Shard::kNone ? "auto" : "tcp"}, [&](Rank& rank) {
      Net net(8);
      freeze(net);
      const Mesh mesh(rank.world(), {{"pp", 2}, {"dp_shard", 2}});
      const Pipeline pipes = pipeline(net, mesh, {.schedule = Name::kInterleaved, .virtual_stages = 2});
      auto parallel = data_parallel(net, rank.world(), {.shard = shard, .pipeline = pipes});
      const int first = 4 * mesh.coordinate("dp_shard");
      pipes.step(parallel, 4,
                 {.input = [&](int i) { return nn::Carry{input_of(first + i)}; },
                  .loss = [&](int i) { return loss_of(net.forward(input_of(first + i)), first + i); }});
      double squares = 0;
      for (const auto& [name, gradient] : expected) squares += (gradient * gradient).sum().item<double>();
      EXPECT_NEAR(optim::gradient_norm(parallel.parameters()).norm, std::sqrt(squares), 1e-12);
    });
  }
}

// Two units with the same weight, on two ranks that draw other initial values.
struct Tied : torch::nn::Module {
  explicit Tied(double value) {
    const at::Tensor shared = at::full({kWidth, kWidth}, value, at::kDouble);
    for (const char* name : {"first", "second"}) {
      const auto part = std::make_shared<Product>(shared);
      parts.emplace_back(name, register_module(name, part));
    }
  }
  struct Product : torch::nn::Module {
    explicit Product(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
    at::Tensor forward(const at::Tensor& x) { return at::tanh(at::linear(x, weight)); }
    at::Tensor weight;
  };
  at::Tensor forward(const at::Tensor& x) { return nn::fold(parts, x); }
  const std::vector<nn::Unit>& units() const { return parts; }
  std::vector<nn::Unit> parts;
};

TEST(Pipelines, CopiesOfATiedWeightBeginEqualAndStepOnce) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    Tied model(0.1 + rank.rank());
    const Pipeline pipes = pipeline(model, row_of(rank.world()));
    auto parallel = data_parallel(model, rank.world(), {.pipeline = pipes});
    EXPECT_EQ(parallel.parameters().front().segments().front().name, "first.weight");
    EXPECT_EQ(parallel.parameters().front().segments().front().aliases, std::vector<std::string>{"second.weight"});
    EXPECT_EQ(pipes.module().parameters().front().max().item<double>(), 0.1);
    const PipelineStep step{.input = [](int i) { return nn::Carry{input_of(i)}; },
                            .loss = [&](int i) { return model.forward(input_of(i)).sum(); }};
    pipes.step(parallel, 2, step);
    try {
      pipes.step(parallel, 2, step);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("has a gradient before the step"));
    }
  });
}

TEST(Pipelines, TheAxisMayHaveAnyName) {
  const auto expected = expected_gradients(4, 2);
  testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
    Net net(4);
    const Pipeline pipes = pipeline(net, Mesh(rank.world(), {{"stages", 2}}), {.axis = "stages"});
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    pipes.step(parallel, 2, step_of(net));
    const auto found = gradients_of(pipes.module());
    EXPECT_EQ(found.size(), 8U);
    for (const auto& [name, gradient] : found) {
      EXPECT_LT((gradient - expected.at(name)).abs().max().item<double>(), 1e-13) << name;
    }
  });
}

TEST(Pipelines, TimesOfUnitsAreTheSameOnAllRanks) {
  testing::run_ranks({.ranks = 3}, [](Rank& rank) {
    Net net(4);
    const std::vector<double> seconds = measure_units(net.units(), {input_of(0)}, rank.world());
    ASSERT_EQ(seconds.size(), 4U);
    std::vector<double> most(seconds);
    rank.world().all_reduce(most.data(), most.data(), 4, DataType::kFloat64, ReduceOp::kMax);
    EXPECT_EQ(most, seconds);
    for (const double one : seconds) EXPECT_GT(one, 0);
    EXPECT_TRUE(gradients_of(net).empty());
    const Pipeline pipes = pipeline(net, row_of(rank.world()), {.costs = seconds});
    EXPECT_EQ(pipes.first_units().size(), 3U);
  });
}

TEST(Pipelines, TheLastStepOfAllRanksIsGathered) {
  testing::run_ranks({.ranks = 3}, [](Rank& rank) {
    Net net(6);
    const Pipeline pipes = pipeline(net, row_of(rank.world()));
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    pipes.step(parallel, 4, step_of(net));
    const schedule::Replay all = pipes.gather_last();
    ASSERT_EQ(all.ranks.size(), 3U);
    for (const auto& spans : all.ranks) {
      const auto computes = std::count_if(spans.begin(), spans.end(),
                                          [](const schedule::Span& span) { return is_compute(span.action.kind); });
      EXPECT_EQ(computes, 8);  // F and B of 4 micro-batches
      for (const schedule::Span& span : spans) {
        EXPECT_LE(0, span.start);
        EXPECT_LE(span.start, span.end);
        EXPECT_LE(span.end, all.total);
      }
    }
    EXPECT_GT(all.bubble, 0);
    EXPECT_LT(all.bubble, 1);
    EXPECT_EQ(all.in_flight.by_rank, (std::vector<int>{3, 2, 1}));
    if (rank.rank() < 2) {
      EXPECT_GT(pipes.last().bytes_sent, 4U * 1024);
    }
  });
}

}  // namespace
}  // namespace reigen::parallel::pipeline_test
