// What goes wrong in pipelines: every fault names its stage, and wrong options are refused on all ranks.
#include <gmock/gmock.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "parallel/pipeline_net.h"
#include "parallel/pipeline_skip_net.h"
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
using ::testing::HasSubstr;
using testing::Rank;
using testing::RankKind;

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

TEST(PipelineFaults, AnExceptionInAStageEndsAllRanksAndNamesIt) {
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

TEST(PipelineFaults, DifferentNumbersOfMicroBatchesAreRefused) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const std::string text = failure_of_step(rank, {}, rank.rank() == 0 ? 4 : 3);
    EXPECT_THAT(text, AllOf(HasSubstr("F1.0"), HasSubstr("different numbers of micro-batches"),
                            HasSubstr("4 on the rank of stage 0, 3 on")));
  });
}

TEST(PipelineFaults, AKilledRankIsNamedWithItsMessage) {
  testing::run_ranks({.ranks = 2, .kind = RankKind::kProcesses, .fault = kill(testing::rank(1)).at_step(2)},
                     [](Rank& rank) {
                       int calls = 0;
                       const std::string text = failure_of_step(rank, [&](int block) {
                         if (block == 2) rank.step(calls++);
                       });
                       EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("pipeline SEND_")));
                     });
}

TEST(PipelineFaults, AStoppedRankIsNamedWithItsMessage) {
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
  return common_refusal({.ranks = ranks, .backend = backend}, [&](Rank& rank) {
    Net net(4);
    if (change) change(net);
    const Mesh mesh(rank.world(), {{"pp", ranks / shards}, {"dp_shard", shards}});
    const Pipeline pipes = pipeline(net, mesh, options);
    DataParallelOptions with = how;
    with.pipeline = pipes;
    auto parallel = data_parallel(net, rank.world(), with);
    pipes.step(parallel, 2, step_of(net));
  });
}

TEST(PipelineFaults, WrongOptionsAreRefusedOnAllRanks) {
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
  EXPECT_THAT(refusal({}, 2, {}, {.backwards_per_reduction = 2}), HasSubstr("backwards_per_reduction"));
  EXPECT_THAT(refusal({.schedule = Name::kZeroBubbleH1}, 4, {}, {.shard = Shard::kParameters}, "tcp", 2),
              AllOf(HasSubstr("divides backward"), HasSubstr("kGradients")));
}

TEST(PipelineFaults, ALossThatDoesNotRunTheModelIsRefused) {
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

TEST(PipelineFaults, WorkBetweenUnitsAndForwardsOutsideAreRefused) {
  testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
    Net net(4);
    const Pipeline pipes = pipeline(net, row_of(rank.world()));
    try {
      net.forward(input_of(0));
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("belongs to another rank"), HasSubstr("Pipeline::step() or evaluate()")));
    }
    EXPECT_THROW(pipeline(net, row_of(rank.world())), InvalidArgument);  // a second one
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    PipelineStep step = step_of(net);
    step.loss = [&](int i) {
      at::Tensor x = nn::call(net.parts[0], input_of(i)) * 2;  // nobody would compute this product
      for (int k = 1; k < 4; ++k) x = nn::call(net.parts[static_cast<std::size_t>(k)], x);
      return loss_of(x, i);
    };
    try {
      pipes.step(parallel, 1, step);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("unit block1 does not get what"),
                                      HasSubstr("tensor 0 of the unit before"), HasSubstr("put it into a unit")));
    }
  });
}

// The limits are those of a message also if both stages lie on one rank.
TEST(PipelineFaults, TensorsThatNoMessageHoldsAreRefused) {
  struct GiverImpl : torch::nn::Module {
    explicit GiverImpl(std::function<nn::Carry(const at::Tensor&)> its_output) : output(std::move(its_output)) {}
    nn::Carry forward(const nn::Carry& in) { return output(in[0] * weight); }
    at::Tensor weight = register_parameter("weight", at::ones({1}, at::kDouble));
    std::function<nn::Carry(const at::Tensor&)> output;
  };
  struct Model : torch::nn::Module {};
  const auto expect_refused = [](const std::vector<int>& placement, const char* expected, const auto& output) {
    const schedule::Schedule own = in_turn(placement, 1);
    testing::run_ranks({.ranks = own.ranks}, [&](Rank& rank) {
      Model model;
      std::vector<nn::Unit> units;
      for (const char* name : {"a", "b"}) {
        units.emplace_back(name, model.register_module(name, std::make_shared<GiverImpl>(output)));
      }
      const Pipeline pipes = pipeline(model, row_of(rank.world()), {.own = own, .units = units});
      auto parallel = data_parallel(model, rank.world(), {.pipeline = pipes});
      try {
        pipes.step(parallel, 1,
                   {.input = [](int i) { return nn::Carry{input_of(i)}; },
                    .loss = [&](int i) { return nn::fold(units, nn::Carry{input_of(i)})[0].sum(); }});
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("stage 0 passes "), HasSubstr(expected)));
      }
    });
  };
  for (const std::vector<int>& placement : {std::vector<int>{0, 0}, {0, 1}}) {
    expect_refused(placement,
                   "1025 tensors to stage 1\n  expected: at most 1024\n  fix: put tensors together (at::cat)",
                   [](const at::Tensor& x) { return nn::Carry(1025, x); });
    expect_refused(placement, "a tensor of 9 dimensions to stage 1\n  expected: tensors of at most 8",
                   [](const at::Tensor& x) {
                     return nn::Carry{x.view({1, 1, 1, 1, 1, 1, 1, -1, kWidth})};
                   });
    expect_refused(placement, "an undefined tensor to stage 1", [](const at::Tensor& x) {
      return nn::Carry{x, at::Tensor()};
    });
  }
}

// Rank 2 waits for the tensor of rank 0 or has it, and rank 0 waits for its gradient.
TEST(PipelineFaults, AnExceptionBesideASkipConnectionEndsAllRanks) {
  for (const Name name : {Name::kGpipe, Name::kOneFOneB, Name::kZeroBubbleH1}) {
    testing::run_ranks({.ranks = 3, .timeout = std::chrono::seconds(20)}, [&](Rank& rank) {
      SkipNet net(3, {{0, 2}, {0, 2}});
      int calls = 0;
      const nn::Unit::Forward forward = [&](const nn::Carry& in) {
        if (calls++ == 1) throw std::runtime_error("no luck");
        return in;
      };
      net.parts[1] = nn::Unit("block1", net.named_children()["block1"], forward);
      const Pipeline pipes = pipeline(net, row_of(rank.world()), {.schedule = name});
      auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
      try {
        pipes.step(parallel, 4, step_of(net));
        ADD_FAILURE();
      } catch (const std::exception& error) {
        EXPECT_THAT(error.what(), HasSubstr("no luck"));
        EXPECT_THAT(error.what(), rank.rank() == 1 ? HasSubstr("") : HasSubstr("rank 1 failed in F1.1"));
      }
    });
  }
}

}  // namespace
}  // namespace reigen::parallel::pipeline_test
