// Pipelines: stages on several ranks compute what one process computes, and every fault names its stage.
#include "reigen/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/without_memory.h"
#include "reigen/optim/clip.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/schedule/text.h"
#include "reigen/schedule/validate.h"

namespace reigen::parallel::pipeline_test {
namespace {

using schedule::Name;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Rank;
using testing::RankKind;

constexpr std::int64_t kWidth = 6;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::function<void()> before = {}) : before_forward(std::move(before)) {}
  at::Tensor forward(const at::Tensor& x) {
    if (before_forward) before_forward();
    return x + at::tanh(second(at::tanh(first(x))));
  }
  std::function<void()> before_forward;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kWidth, kWidth));
};

// Blocks with the names block0, block1, ...
struct Net : torch::nn::Module {
  explicit Net(int blocks, std::function<void(int block)> before = {}) {
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "block" + std::to_string(i);
      const auto block = std::make_shared<BlockImpl>(before ? [before, i] { before(i); } : std::function<void()>());
      parts.emplace_back(name, register_module(name, block));
    }
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& one : parameters()) {
      one.copy_(at::sin(at::arange(one.numel(), at::kDouble) * 7 + static_cast<double>(one.dim())).view(one.sizes()) /
                3);
    }
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(parts, x); }
  const std::vector<nn::Unit>& units() const { return parts; }
  std::vector<nn::Unit> parts;
};

at::Tensor input_of(int micro_batch) {
  const std::int64_t rows = 2 + micro_batch % 3;  // micro-batches may differ
  return at::cos(at::arange(rows * kWidth, at::kDouble) * 3 + micro_batch).view({rows, kWidth});
}

at::Tensor loss_of(const at::Tensor& y, int micro_batch) { return (y * y).sum() / (3.0 + micro_batch); }

std::map<std::string, at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> result;
  for (const auto& item : module.named_parameters()) {
    if (item.value().grad().defined()) result[item.key()] = item.value().grad().detach().clone();
  }
  return result;
}

// The gradients of one process.
std::map<std::string, at::Tensor> expected_gradients(int blocks, int micro_batches) {
  Net net(blocks);
  for (int i = 0; i < micro_batches; ++i) loss_of(net.forward(input_of(i)), i).backward();
  return gradients_of(net);
}

PipelineStep step_of(Net& net) {
  return {.input = [](int i) { return nn::Carry{input_of(i)}; },
          .loss = [&net](int i) { return loss_of(net.forward(input_of(i)), i); }};
}

Mesh row_of(Communicator& world) { return Mesh(world, {{"pp", world.size()}}); }

struct Case {
  int ranks = 1;
  Name schedule = Name::kOneFOneB;
  int micro_batches = 1;
  int virtual_stages = 1;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << to_text(one.schedule) << ", " << one.ranks << " ranks, " << one.micro_batches << " micro-batches, "
       << one.virtual_stages << " stages each";
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Name name : schedule::names()) {
    for (const int ranks : {1, 2, 4}) {
      for (const int micro_batches : {1, 3, 8}) {
        for (const int stages : {1, 2}) {
          if (stages > 1 && !schedule::has_virtual_stages(name)) continue;
          cases.push_back({ranks, name, micro_batches, stages});
        }
      }
    }
  }
  return cases;
}

// The number of activations that a rank holds at one time is that of the schedule, counted by the runtime.
TEST(Pipelines, EveryScheduleGivesTheGradientsOfOneProcess) {
  constexpr int kBlocks = 8;
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(::testing::PrintToString(one));
    const auto expected = expected_gradients(kBlocks, one.micro_batches);
    std::mutex mutex;
    std::map<std::string, at::Tensor> found;
    testing::run_ranks({.ranks = one.ranks}, [&](Rank& rank) {
      Net net(kBlocks);
      const Mesh mesh = row_of(rank.world());
      const Pipeline pipes = pipeline(net, mesh, {.schedule = one.schedule, .virtual_stages = one.virtual_stages});
      auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
      for (int again = 0; again < 2; ++again) {
        for (const ParameterRange& range : parallel.parameters()) range.drop_gradients();
        pipes.step(parallel, one.micro_batches, step_of(net));
      }
      const schedule::InFlight bound = schedule::validate(pipes.schedule_of(one.micro_batches));
      const auto here = static_cast<std::size_t>(rank.rank());
      EXPECT_EQ(pipes.last().in_flight.by_rank[here], bound.by_rank[here]);
      for (std::size_t s = 0; s < bound.by_stage.size(); ++s) {
        const bool is_here = pipes.schedule_of(1).placement[s] == rank.rank();
        EXPECT_EQ(pipes.last().in_flight.by_stage[s], is_here ? bound.by_stage[s] : 0) << "stage " << s;
      }
      const std::lock_guard lock(mutex);
      for (const auto& [name, gradient] : gradients_of(pipes.module())) {
        EXPECT_FALSE(found.contains(name)) << name;
        found[name] = gradient;
      }
    });
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, gradient] : expected) {
      EXPECT_LT((found.at(name) - gradient).abs().max().item<double>(), 1e-13) << name;
    }
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
      EXPECT_THAT(error.what(), AllOf(HasSubstr("another number of micro-batches"), HasSubstr("got: 3")));
    }
  });
}

TEST(Pipelines, UnitsMayComputeTheirActivationsAgain) {
  const auto expected = expected_gradients(4, 3);
  for (const Name name : {Name::kOneFOneB, Name::kZeroBubbleH1}) {
    testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
      Net net(4);
      const auto recompute = nn::activation_checkpoint(net.units(), {.every = 1});
      const Pipeline pipes = pipeline(net, row_of(rank.world()), {.schedule = name});
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

// ---- What goes wrong

// Runs a step on two ranks with two blocks each. `before` is called before each forward of a block.
std::string failure_of_step(Rank& rank, const std::function<void(int block)>& before, int micro_batches = 4) {
  Net net(4, before);
  const Pipeline pipes = pipeline(net, row_of(rank.world()));
  auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
  try {
    pipes.step(parallel, micro_batches, step_of(net));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Pipelines, AnExceptionInAStageEndsAllRanksAndNamesIt) {
  for (const int culprit : {0, 1}) {
    testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
      int calls = 0;
      const std::string text = failure_of_step(rank, [&](int block) {
        if (block == 2 * culprit && calls++ == 2) throw std::runtime_error("no luck");
      });
      if (rank.rank() == culprit) {
        EXPECT_THAT(text, HasSubstr("no luck"));
      } else {
        EXPECT_THAT(text, AllOf(HasSubstr("rank " + std::to_string(culprit) + " failed in F"),
                                HasSubstr("forward of stage " + std::to_string(culprit) + ", micro-batch 2"),
                                HasSubstr("no luck")));
      }
    });
  }
}

TEST(Pipelines, DifferentNumbersOfMicroBatchesAreRefused) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const std::string text = failure_of_step(rank, {}, rank.rank() == 0 ? 4 : 3);
    EXPECT_THAT(text, AllOf(HasSubstr("F1.0"), HasSubstr("different numbers of micro-batches"),
                            HasSubstr("4 on the rank of stage 0, 3 on")));
  });
}

TEST(Pipelines, AKilledRankIsNamedWithItsMessage) {
  testing::run_ranks({.ranks = 2, .kind = RankKind::kProcesses, .fault = kill(testing::rank(1)).at_step(2)},
                     [](Rank& rank) {
                       int calls = 0;
                       const std::string text = failure_of_step(rank, [&](int block) {
                         if (block == 2) rank.step(calls++);
                       });
                       EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("pipeline SEND_")));
                     });
}

TEST(Pipelines, AStoppedRankIsNamedWithItsMessage) {
  testing::run_ranks({.ranks = 2,
                      .kind = RankKind::kProcesses,
                      .fault = stop(testing::rank(0)).at_step(2),
                      .heartbeat_timeout = std::chrono::seconds(2)},
                     [](Rank& rank) {
                       int calls = 0;
                       const std::string text = failure_of_step(rank, [&](int block) {
                         if (block == 0) rank.step(calls++);
                       });
                       EXPECT_THAT(text, AllOf(HasSubstr("rank 0"), HasSubstr("pipeline SEND_")));
                     });
}

// The error of pipeline(), data_parallel() or step() with these options, the same on all ranks.
std::string refusal(PipelineOptions options, int ranks = 2, const std::function<void(Net&)>& change = {},
                    const DataParallelOptions& how = {}, const std::string& backend = "auto", int shards = 1) {
  std::mutex mutex;
  std::string first;
  testing::run_ranks({.ranks = ranks, .backend = backend}, [&](Rank& rank) {
    Net net(4);
    if (change) change(net);
    std::string text = "nothing";
    try {
      const Mesh mesh(rank.world(), {{"pp", ranks / shards}, {"dp_shard", shards}});
      const Pipeline pipes = pipeline(net, mesh, options);
      DataParallelOptions with = how;
      with.pipeline = pipes;
      auto parallel = data_parallel(net, rank.world(), with);
      pipes.step(parallel, 2, step_of(net));
    } catch (const InvalidArgument& error) {
      text = error.what();
    }
    const std::lock_guard lock(mutex);
    if (first.empty()) first = text;
    EXPECT_EQ(text, first);
  });
  return first;
}

TEST(Pipelines, WrongOptionsAreRefusedOnAllRanks) {
  EXPECT_THAT(refusal({.axis = "stages"}), AllOf(HasSubstr("no axis stages"), HasSubstr("pp 2")));
  EXPECT_THAT(refusal({.first_units = {0, 4}}), AllOf(HasSubstr("first_units"), HasSubstr("rise from 0 to at most 3")));
  EXPECT_THAT(refusal({.first_units = {1, 2}}), HasSubstr("got: 1, 2"));
  EXPECT_THAT(refusal({.costs = {1, 2}}), AllOf(HasSubstr("2 costs"), HasSubstr("4, one for each unit")));
  EXPECT_THAT(refusal({}, 5), AllOf(HasSubstr("4 units, 5 stages")));
  EXPECT_THAT(refusal({.schedule = Name::kGpipe, .virtual_stages = 2}), HasSubstr("2 virtual stages"));
  EXPECT_THAT(refusal({.own = schedule::gpipe({.ranks = 3, .micro_batches = 2})}),
              AllOf(HasSubstr("another number of ranks"), HasSubstr("got: 3")));
  schedule::Schedule gathers = schedule::gpipe({.ranks = 2, .micro_batches = 2});
  gathers.actions[0].insert(gathers.actions[0].begin(), {schedule::Kind::kUnshard, 0});
  EXPECT_THAT(refusal({.own = gathers}), AllOf(HasSubstr("UNSHARD0"), HasSubstr("leave UNSHARD, RESHARD")));
  EXPECT_THAT(refusal({}, 2, [](Net& net) { net.register_parameter("scale", at::ones({1}, at::kDouble)); }),
              AllOf(HasSubstr("belongs to no unit"), HasSubstr("scale")));
  EXPECT_THAT(refusal({}, 2, [](Net& net) { net.register_buffer("mask", at::ones({1}, at::kDouble)); }),
              AllOf(HasSubstr("belongs to no unit"), HasSubstr("mask")));
  EXPECT_THAT(refusal({}, 2,
                      [](Net& net) {
                        const auto block = std::make_shared<BlockImpl>();
                        block->to(at::kDouble);
                        net.parts[1] = nn::Unit("block1", block);
                      }),
              AllOf(HasSubstr("a unit is not at its place"), HasSubstr("block1")));
  EXPECT_THAT(refusal({}, 2,
                      [](Net& net) {
                        for (const char* name : {"block0", "block1"}) {
                          for (at::Tensor one : net.named_children()[name]->parameters()) one.requires_grad_(false);
                        }
                      }),
              AllOf(HasSubstr("nothing to train"), HasSubstr("coordinate 0")));
  EXPECT_THAT(refusal({.schedule = Name::kZeroBubbleH1}, 4, {}, {.shard = Shard::kParameters}, "tcp", 2),
              AllOf(HasSubstr("divides backward"), HasSubstr("kGradients")));
}

TEST(Pipelines, ALossThatDoesNotRunTheModelIsRefused) {
  const auto run = [](const std::function<at::Tensor(Net&, int)>& loss, const char* expected) {
    testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
      Net net(4);
      const Pipeline pipes = pipeline(net, row_of(rank.world()));
      auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
      PipelineStep step = step_of(net);
      step.loss = [&](int i) { return loss(net, i); };
      try {
        pipes.step(parallel, 2, step);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(expected));
      }
    });
  };
  run([](Net&, int) { return at::ones({1}, at::kDouble); }, "got: 0 calls of its 2 units");
  run([](Net& net, int i) { return loss_of(net.forward(net.forward(input_of(i))), i); }, "got: 4 calls");
  run([](Net& net, int i) { return net.forward(input_of(i)); }, "got: 12 elements");
  run([](Net& net, int i) { return net.forward(input_of(i)), at::Tensor(); }, "an undefined tensor");
}

TEST(Pipelines, TooManyTensorsAreRefused) {
  struct ManyImpl : torch::nn::Module {
    nn::Carry forward(const nn::Carry& in) { return nn::Carry(9, in[0] * weight); }
    at::Tensor weight = register_parameter("weight", at::ones({1}, at::kDouble));
  };
  struct Model : torch::nn::Module {};
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    Model model;
    std::vector<nn::Unit> units;
    for (const char* name : {"a", "b"})
      units.emplace_back(name, model.register_module(name, std::make_shared<ManyImpl>()));
    const Pipeline pipes = pipeline(model, row_of(rank.world()), {.units = units});
    auto parallel = data_parallel(model, rank.world(), {.pipeline = pipes});
    try {
      pipes.step(parallel, 1,
                 {.input = [](int i) { return nn::Carry{input_of(i)}; },
                  .loss = [&](int i) { return nn::fold(units, nn::Carry{input_of(i)})[0].sum(); }});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("stage 0 passes 9 tensors"), HasSubstr("at most 8")));
    }
  });
}

}  // namespace
}  // namespace reigen::parallel::pipeline_test
