// Skip connections of less usual kinds: many tensors, tensors without a use or a gradient, forwards without fold().
#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "parallel/pipeline_net.h"
#include "parallel/pipeline_skip_net.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/skips.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/text.h"

namespace reigen::parallel::pipeline_test {
namespace {

using schedule::Name;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;

// Connections between the same two blocks.
Ends several(std::size_t count, std::size_t from, std::size_t to) { return Ends(count, {from, to}); }

TEST(PipelineSkipCases, AnyNumberOfTensorsGoesFromStageToStage) {
  for (const std::size_t count : {8U, 9U, 20U}) {
    SCOPED_TRACE(count);
    for (const std::vector<int>& placement : {std::vector<int>{0, 0}, {0, 1}}) {
      const auto make = [&] { return std::make_shared<SkipNet>(2, several(count - 1, 0, 1)); };
      const schedule::Schedule own = in_turn(placement, 2);
      expect_gradients_of_one_process(make, own.ranks, 2, {.own = own});
    }
    for (const std::vector<int>& placement : {std::vector<int>{0, 0, 0}, {0, 1, 1}, {0, 1, 0}}) {
      const auto make = [&] { return std::make_shared<SkipNet>(3, several(count, 0, 2)); };
      const schedule::Schedule own = in_turn(placement, 2, {{0, 2}});
      expect_gradients_of_one_process(make, own.ranks, 2, {.own = own});
    }
  }
}

TEST(PipelineSkipCases, ANetInTheFormOfAUIsCutAnywhere) {
  Ends ends;
  for (std::size_t i = 0; i < 12; ++i) ends.emplace_back(i, 23 - i);
  const auto make = [&] { return std::make_shared<SkipNet>(24, ends); };
  expect_gradients_of_one_process(make, 2, 3, {});
  expect_gradients_of_one_process(make, 4, 3, {});
  expect_gradients_of_one_process(make, 2, 3, {.schedule = Name::kZeroBubbleV, .virtual_stages = 2});
}

// Blocks with one weight each, and with forwards that a test gives.
using Forward = std::function<nn::Carry(const at::Tensor& weight, const nn::Carry& in)>;
struct OwnNet : torch::nn::Module {
  struct WeightImpl : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::ones({kWidth, kWidth}, at::kDouble));
  };
  OwnNet(const std::vector<Forward>& forwards, std::vector<nn::Skip> its_skips) : all_skips(std::move(its_skips)) {
    for (const Forward& forward : forwards) {
      const std::string name = block(parts.size());
      const auto made = register_module(name, std::make_shared<WeightImpl>());
      parts.emplace_back(name, made,
                         [module = made.get(), forward](const nn::Carry& in) { return forward(module->weight, in); });
    }
    set_values(*this);
  }
  virtual at::Tensor forward(const at::Tensor& x) { return nn::fold(parts, x, all_skips); }
  const std::vector<nn::Unit>& units() const { return parts; }
  const std::vector<nn::Skip>& skips() const { return all_skips; }
  std::vector<nn::Unit> parts;
  std::vector<nn::Skip> all_skips;
};

at::Tensor applied(const at::Tensor& weight, const at::Tensor& x) { return x + at::tanh(at::linear(x, weight)); }
nn::Carry plain(const at::Tensor& weight, const nn::Carry& in) { return {applied(weight, in[0])}; }

// For models of four units: whole and divided backwards, with one and two stages on a rank.
template <class Make>
void expect_gradients_in_all_ways(const Make& make) {
  for (const auto& [name, ranks, stages] : {std::tuple{Name::kOneFOneB, 4, 1},
                                            {Name::kGpipe, 2, 1},
                                            {Name::kZeroBubbleH1, 4, 1},
                                            {Name::kZeroBubbleH1, 2, 1},
                                            {Name::kInterleaved, 2, 2},
                                            {Name::kZeroBubbleV, 2, 2}}) {
    SCOPED_TRACE(std::string(to_text(name)) + " on " + std::to_string(ranks));
    expect_gradients_of_one_process(make, ranks, 3, {.schedule = name, .virtual_stages = stages});
  }
}

TEST(PipelineSkipCases, AUnitMayIgnoreWhatItTakes) {
  const auto gives = [](const at::Tensor& weight, const nn::Carry& in) {
    const at::Tensor y = applied(weight, in[0]);
    return nn::Carry{y, at::sin(y), at::cos(y)};
  };
  // No gradient comes back for the first connection of block3.
  const auto takes = [](const at::Tensor& weight, const nn::Carry& in) {
    return nn::Carry{applied(weight, in[0]) * in[2]};
  };
  expect_gradients_in_all_ways([&] {
    return std::make_shared<OwnNet>(std::vector<Forward>{gives, plain, plain, takes},
                                    std::vector<nn::Skip>{{"block0", "block3"}, {"block0", "block3"}});
  });
  expect_gradients_in_all_ways([&] {  // nor for any connection of block2
    return std::make_shared<OwnNet>(std::vector<Forward>{gives, plain, plain, plain},
                                    std::vector<nn::Skip>{{"block0", "block2"}, {"block0", "block2"}});
  });
}

TEST(PipelineSkipCases, AUnitThatIsComputedAgainMayTakeNumbersWithoutAGradient) {
  struct Checkpointed : OwnNet {
    using OwnNet::OwnNet;
    nn::ActivationCheckpoint recompute = nn::activation_checkpoint(parts, {.every = 1});
  };
  const auto gives = [](const at::Tensor& weight, const nn::Carry& in) {
    return nn::Carry{applied(weight, in[0]), at::sin(in[0].detach()), at::cos(in[0] * 2)};
  };
  const auto takes = [](const at::Tensor& weight, const nn::Carry& in) {
    return nn::Carry{applied(weight, in[0]) * in[1] + in[2]};
  };
  for (const char* const taker : {"block2", "block3"}) {
    std::vector<Forward> forwards{gives, plain, plain, plain};
    forwards[taker == std::string("block2") ? 2 : 3] = takes;
    expect_gradients_in_all_ways([&] {
      return std::make_shared<Checkpointed>(forwards, std::vector<nn::Skip>{{"block0", taker}, {"block0", taker}});
    });
  }
}

TEST(PipelineSkipCases, AUnitMayGiveWhatItTakes) {
  const auto gives = [](const at::Tensor& weight, const nn::Carry& in) {
    const at::Tensor y = applied(weight, in[0]);
    return nn::Carry{y, at::sin(y)};
  };
  const auto passes_on = [](const at::Tensor& weight, const nn::Carry& in) {
    return nn::Carry{applied(weight, in[0]), in[1], in[1]};
  };
  const auto takes = [](const at::Tensor& weight, const nn::Carry& in) {
    return nn::Carry{applied(weight, in[0]) * at::cos(in[1])};
  };
  expect_gradients_in_all_ways([&] {
    return std::make_shared<OwnNet>(
        std::vector<Forward>{gives, passes_on, takes, takes},
        std::vector<nn::Skip>{{"block0", "block1"}, {"block1", "block2"}, {"block1", "block3"}});
  });
}

TEST(PipelineSkipCases, EvaluateGivesTheOutputOfOneProcessOnAnyPlacement) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Drawn drawn(seed);
    SCOPED_TRACE(std::to_string(seed) + "\n" + to_text(drawn.own));
    SkipNet one(8, drawn.ends);
    testing::run_ranks({.ranks = drawn.own.ranks}, [&](Rank& rank) {
      SkipNet net(8, drawn.ends);
      const Pipeline pipes = pipeline(net, row_of(rank.world()), {.own = drawn.own, .first_units = drawn.first_units});
      auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
      int used = 0;
      PipelineStep what = step_of(net);
      what.loss = [&](int i) {
        EXPECT_TRUE(at::equal(net.forward(input_of(i)), one.forward(input_of(i))));
        ++used;
        return at::Tensor();
      };
      pipes.evaluate(parallel, 3, what);
      EXPECT_EQ(used, pipes.has_last_stage() ? 3 : 0);
    });
  }
}

// A forward without fold() finds the tensor of a connection at the end, also where block0 belongs to another rank.
struct TwoTensorsByHand : OwnNet {
  explicit TwoTensorsByHand(bool its_folds = false)
      : OwnNet(
            {[](const at::Tensor& weight, const nn::Carry& in) {
               const at::Tensor y = applied(weight, in[0]);
               return nn::Carry{y, at::cos(y), at::sin(y)};
             },
             [](const at::Tensor& weight, const nn::Carry& in) {
               EXPECT_EQ(in.size(), 2U);
               return nn::Carry{applied(weight, in[0]) * in[1]};
             },
             [](const at::Tensor& weight, const nn::Carry& in) { return nn::Carry{applied(weight, in[0]) + in[1]}; }},
            {{"block0", "block2"}}),
        folds(its_folds) {}
  at::Tensor forward(const at::Tensor& x) override {
    if (folds) return nn::fold(parts, x, all_skips);
    const nn::Carry a = nn::call(parts[0], nn::Carry{x});
    const nn::Carry b = nn::call(parts[1], nn::Carry(a.begin(), a.end() - 1));
    return nn::call(parts[2], nn::Carry{b[0], a.back()})[0];
  }
  bool folds;
};

TEST(PipelineSkipCases, AForwardByHandFindsTheTensorAtTheEnd) {
  for (const bool folds : {false, true}) {
    for (const std::vector<std::size_t>& cut : {std::vector<std::size_t>{0, 1}, {0, 2}, {0, 1, 2}}) {
      expect_gradients_of_one_process([&] { return std::make_shared<TwoTensorsByHand>(folds); },
                                      static_cast<int>(cut.size()), 2, {.first_units = cut});
    }
  }
}

// The unit before the last stage returns as many tensors as the stage got; the others as many as they get.
TEST(PipelineSkipCases, AForwardByHandThatCountsFromTheFrontIsToldWhatItGives) {
  struct FromTheFront : TwoTensorsByHand {
    at::Tensor forward(const at::Tensor& x) override {
      const nn::Carry a = nn::call(parts[0], nn::Carry{x});
      const nn::Carry b = nn::call(parts[1], nn::Carry{a[0], a[1]});
      return nn::call(parts[2], nn::Carry{b[0], a.back()})[0];
    }
  };
  const auto make = [] { return std::make_shared<FromTheFront>(); };
  expect_gradients_of_one_process(make, 2, 2, {.first_units = {0, 1}});
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    FromTheFront net;
    const Pipeline pipes = pipeline(net, row_of(rank.world()), {.first_units = {0, 2}});
    auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
    try {
      pipes.step(parallel, 1, step_of(net));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("unit block1"), HasSubstr("got: 2 tensors"),
                                      HasSubstr("expected: 1 tensor: 1 of the unit before")));
    }
  });
}

// A send reads block0's tensor while block1, on the same rank, runs.
TEST(PipelineSkipCases, ATensorThatIsSentIsNotThatOfALocalStage) {
  for (const std::vector<int>& placement : {std::vector<int>{0, 0, 1}, {0, 0, 0}}) {
    const schedule::Schedule own = in_turn(placement, 1, {{0, 2}});
    testing::run_ranks({.ranks = own.ranks}, [&](Rank& rank) {
      at::Tensor given, got;
      const auto gives = [&](const at::Tensor& weight, const nn::Carry& in) {
        given = applied(weight, in[0]);
        return nn::Carry{given, given};
      };
      const auto gets = [&](const at::Tensor& weight, const nn::Carry& in) {
        got = in[0];
        return plain(weight, in);
      };
      const auto takes = [](const at::Tensor& weight, const nn::Carry& in) { return plain(weight, {in[0] * in[1]}); };
      OwnNet net({gives, gets, takes}, {{"block0", "block2"}});
      const Pipeline pipes = pipeline(net, row_of(rank.world()), {.own = own});
      auto parallel = data_parallel(net, rank.world(), {.pipeline = pipes});
      pipes.evaluate(parallel, 1, step_of(net));
      if (rank.rank() == 0) {
        EXPECT_TRUE(at::equal(got, given));
        EXPECT_EQ(got.is_alias_of(given), own.ranks == 1);
      }
      pipes.step(parallel, 1, step_of(net));
      if (rank.rank() == 0) {
        EXPECT_TRUE(got.is_alias_of(given));  // LibTorch refuses to write to it
      }
    });
  }
}

// Whole weights are compared one by one; divided ones by what the model computes with them.
TEST(PipelineSkipCases, DataParallelRanksTrainAsOneProcess) {
  const auto one = make_net();
  const double rate = 0.05;
  for (int i = 0; i < 8; ++i) (loss_of(one->forward(input_of(i)), i) / 2).backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : one->parameters()) parameter.sub_(parameter.grad(), rate);
  const auto expected = one->named_parameters();
  nn::Carry outputs;
  for (int i = 0; i < 8; ++i) outputs.push_back(one->forward(input_of(i)));
  struct Case {
    Name schedule;
    Shard shard;
  };
  for (const Case& one_case : {Case{Name::kZeroBubbleV, Shard::kNone},
                               {Name::kZeroBubbleV, Shard::kGradients},
                               {Name::kInterleaved, Shard::kNone},
                               {Name::kInterleaved, Shard::kGradients},
                               {Name::kInterleaved, Shard::kParameters}}) {
    const Shard shard = one_case.shard;
    SCOPED_TRACE(std::string(to_text(one_case.schedule)) + ", shard " + std::to_string(static_cast<int>(shard)));
    testing::run_ranks({.ranks = 4, .backend = shard == Shard::kNone ? "auto" : "tcp"}, [&](Rank& rank) {
      const auto net = make_net();
      const Mesh mesh(rank.world(), {{"pp", 2}, {"dp_shard", 2}});
      const Pipeline pipes = pipeline(*net, mesh, {.schedule = one_case.schedule, .virtual_stages = 2});
      auto parallel = data_parallel(*net, rank.world(), {.shard = shard, .pipeline = pipes});
      optim::SGD optimizer(parallel.parameters(), {.lr = rate});
      const int first = 4 * mesh.coordinate("dp_shard");
      PipelineStep what{.input = [&](int i) { return nn::Carry{input_of(first + i)}; },
                        .loss = [&](int i) { return loss_of(net->forward(input_of(first + i)), first + i); }};
      pipes.step(parallel, 4, what);
      optimizer.step();
      optimizer.zero_grad();
      what.loss = [&](int i) {
        const at::Tensor difference = net->forward(input_of(first + i)) - outputs[static_cast<std::size_t>(first + i)];
        EXPECT_LT(difference.abs().max().item<double>(), 1e-12);
        return at::Tensor();
      };
      pipes.evaluate(parallel, 4, what);
      if (shard == Shard::kParameters) return;
      for (const auto& item : pipes.module().named_parameters()) {
        EXPECT_LT((item.value() - expected[item.key()]).abs().max().item<double>(), 1e-13) << item.key();
      }
    });
  }
}

}  // namespace
}  // namespace reigen::parallel::pipeline_test
