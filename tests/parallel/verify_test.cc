// The user's own check of a model. It must pass an equal training, and otherwise name the difference.
#include "reigen/parallel/verify.h"

#include <gmock/gmock.h>

#include "parallel/oracle.h"
#include "reigen/nn/sync_batch_norm.h"

namespace reigen::testing_oracle::verify_test {
namespace {

using parallel::VerifyReport;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// The report of each rank.
template <class Model, class Loss>
std::vector<VerifyReport> reports(int ranks, const Loss& loss, std::int64_t samples = 7,
                                  const parallel::VerifyOptions& options = {}) {
  std::vector<VerifyReport> result(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](Communicator& world) -> Tensors {
    Model model;
    const Tensors before = values_of(model);
    result[static_cast<std::size_t>(world.rank())] = verify(
        model, world, [&](const at::Tensor& x, const at::Tensor& y) { return loss(model, x, y, world); },
        numbers(1, {samples, 4}), numbers(2, {samples, 3}), options);
    EXPECT_TRUE(same_bits(before, values_of(model))) << "the model is as it was";
    for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
    return {};
  });
  for (const VerifyReport& report : result) EXPECT_EQ(report.text, result[0].text);
  return result;
}

const auto kMeanLoss = [](auto& model, const at::Tensor& x, const at::Tensor& y, const Communicator&) {
  return torch::mse_loss(model.forward(x), y);
};

TEST(Verify, PassesWhatIsTheSame) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto all = reports<Mlp>(ranks, kMeanLoss);
    EXPECT_TRUE(all[0].same) << all[0].text;
    EXPECT_LT(all[0].largest, 1e-12);
    EXPECT_THAT(all[0].text, HasSubstr("the same after 3 steps"));
  }
}

TEST(Verify, NamesALossThatIsASum) {
  const auto all = reports<Mlp>(2, [](auto& model, const at::Tensor& x, const at::Tensor& y, const Communicator&) {
    return (model.forward(x) - y).square().sum();
  });
  EXPECT_FALSE(all[0].same);
  EXPECT_EQ(all[0].step, 1);
  EXPECT_EQ(all[0].what, "gradient");
  EXPECT_EQ(all[0].parameter, "first.weight");
  EXPECT_THAT(all[0].text, AllOf(HasSubstr("step 1: the gradient of first.weight differs"), HasSubstr("alone")));
}

struct Normed : torch::nn::Module {
  Normed() {
    first = register_module("first", torch::nn::Linear(4, 5));
    norm = register_module("norm", torch::nn::BatchNorm1d(5));
    last = register_module("last", torch::nn::Linear(5, 3));
    fill(*this);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return last(norm(first(x))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(Verify, NamesBatchStatisticsOfParts) {
  const auto all = reports<Normed>(2, kMeanLoss, 8);
  EXPECT_FALSE(all[0].same);
  EXPECT_EQ(all[0].step, 1);
}

// Only one rank forgets a parameter, and the average is wrong on all ranks.
TEST(Verify, NamesAParameterThatARankLeavesOut) {
  const auto all = reports<Mlp>(3, [](auto& model, const at::Tensor& x, const at::Tensor& y,
                                      const Communicator& world) {
    const at::Tensor hidden = torch::tanh(model.second(torch::tanh(model.first(x))));
    const bool leaves_out = world.rank() == 1 && x.size(0) < 7;
    return torch::mse_loss(
        leaves_out ? torch::linear(hidden, model.third->weight.detach(), model.third->bias) : model.third(hidden), y);
  });
  EXPECT_FALSE(all[0].same);
  EXPECT_EQ(all[0].parameter, "third.weight");
}

TEST(Verify, ALossThatThrowsOnOneRankIsToldToAll) {
  for (const int call : {2, 4}) {  // the run alone, the run in parallel
    const auto texts = errors_on(3, [&](Communicator& world) {
      Mlp model;
      const Tensors before = values_of(model);
      int calls = 0;
      const auto loss = [&](const at::Tensor& in, const at::Tensor& out) {
        if (++calls == call && world.rank() == 1) throw InvalidArgument("my own mistake");
        return torch::mse_loss(model.forward(in), out);
      };
      try {
        verify(model, world, loss, numbers(1, {6, 4}), numbers(2, {6, 3}));
      } catch (...) {
        EXPECT_TRUE(same_bits(before, values_of(model)));
        throw;
      }
    });
    EXPECT_THAT(texts[1], HasSubstr("my own mistake"));
    EXPECT_THAT(texts[0], HasSubstr("the loss threw on rank 1"));
    EXPECT_EQ(texts[2], texts[0]);
  }
}

TEST(Verify, RefusesBatchesThatAreShares) {
  const auto texts = errors_on(2, [](Communicator& world) {
    Mlp model;
    const at::Tensor x = numbers(static_cast<std::uint64_t>(world.rank()), {4, 4});
    verify(
        model, world,
        [&](const at::Tensor& in, const at::Tensor& out) { return torch::mse_loss(model.forward(in), out); }, x,
        numbers(2, {4, 3}));
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("the batches differ"), HasSubstr("rank 1"), HasSubstr("not its share"))));
}

TEST(Verify, RefusesFewerSamplesThanRanks) {
  const auto texts = errors_on(3, [](Communicator& world) {
    Mlp model;
    verify(
        model, world,
        [&](const at::Tensor& in, const at::Tensor& out) { return torch::mse_loss(model.forward(in), out); },
        numbers(1, {2, 4}), numbers(2, {2, 3}));
  });
  EXPECT_THAT(texts, Each(HasSubstr("at least 3")));
}

}  // namespace
}  // namespace reigen::testing_oracle::verify_test
