// Hooks of backward must not wait for another rank.
#include <gmock/gmock.h>

#include <stdexcept>

#include "harness/torch.h"
#include "parallel/oracle.h"

namespace reigen::parallel::hooks_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::Each;
using ::testing::HasSubstr;

// Averages in begin(), which a strategy must not do.
class Impatient : public GradientStrategy {
 public:
  explicit Impatient(Communicator world) : world_(std::move(world)) {}
  std::string description() const override { return "impatient"; }
  std::uint64_t bytes_given() const override { return 0; }
  void begin(const GradientBucket& bucket) override {
    const at::Tensor& run = bucket.runs.front();
    world_.all_reduce(run.mutable_data_ptr(), run.mutable_data_ptr(), static_cast<std::size_t>(run.numel()),
                      DataType::kFloat64, ReduceOp::kAvg, {.tag = bucket.tag});
  }
  void end(const GradientBucket&) override {}

 private:
  Communicator world_;
};

TEST(Hooks, AStrategyThatWaitsInOneIsRefused) {
  std::vector<std::string> texts(2);
  on_ranks(2, [&](Communicator& world) -> Tensors {
    Mlp model;
    auto parallel = data_parallel(model, world, {.bucket_mb = 0, .strategy = [](const Communicator& ranks) {
                                                   return std::make_unique<Impatient>(ranks);
                                                 }});
    try {
      parallel(share(numbers(1, {4, 4}), world)).sum().backward();
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(world.rank())] = error.what();
    }
    return {torch::zeros(1)};
  });
  EXPECT_THAT(texts, Each(HasSubstr("a hook of a gradient waits for another rank")));
}

// The ranks synchronise in backward, like those of batch statistics over ranks.
struct Meet : torch::autograd::Function<Meet> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, std::int64_t group) {
    context->saved_data["group"] = group;
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    reinterpret_cast<Communicator*>(context->saved_data["group"].toInt())->barrier({.tag = "in backward"});
    return {gradients[0], at::Tensor()};
  }
};

// Layers, one of which a rank can leave out. Backward synchronises the ranks before the first layer.
struct Stack : torch::nn::Module {
  Stack() {
    for (int i = 0; i < 6; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(32, 32)));
    }
    fill(*this);
  }
  at::Tensor forward(at::Tensor x, Communicator& group, bool leaves_out) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (i == 4 && leaves_out) continue;
      x = torch::tanh(layers[i](x));
      if (i == 0) x = Meet::apply(x, reinterpret_cast<std::int64_t>(&group));
    }
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

// If a rank's hook waited for the layer that the other rank leaves out, it would wait for ever. The other rank sends
// zeros for this layer only at the end of its backward, and before that it waits for this rank.
TEST(Hooks, RanksThatMeetInBackwardMayLeaveOutDifferentLayers) {
  const auto run = [](Shard shard) {
    const auto results = on_ranks(
        2,
        [&](Communicator& world) -> Tensors {
          Communicator group = *world.split(0, world.rank());
          Stack model;
          auto parallel = data_parallel(model, world, {.bucket_mb = 0.001, .shard = shard});
          optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
          for (std::uint64_t step = 0; step < 3; ++step) {
            parallel(share(numbers(step, {8, 32}), world), group, world.rank() == 1).square().mean().backward();
            optimizer.step();
            optimizer.zero_grad();
          }
          parallel.gather_weights();
          return values_of(model);
        },
        "tcp");
    EXPECT_TRUE(same_bits(results[0], results[1]));
    return results[0];
  };
  const Tensors own = run(Shard::kNone);
  EXPECT_EQ(distance(run(Shard::kGradients), own), 0);
  EXPECT_EQ(distance(run(Shard::kParameters), own), 0);
}

// A backward fails on all ranks after buckets were sent. The next backward has no forward before it. Its hooks do not
// wait, and its average is complete.
TEST(Hooks, ABackwardAfterADeadOneAveragesAtItsEnd) {
  for (const char* backend : {"shared_memory", "tcp"}) {
    for (const Shard shard : {Shard::kNone, Shard::kGradients}) {
      const auto results = on_ranks(
          2,
          [&](Communicator& world) -> Tensors {
            Mlp model;
            auto parallel = data_parallel(model, world, {.bucket_mb = 0, .shard = shard});
            optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
            const at::Tensor fine = parallel(share(numbers(1, {4, 4}), world)).square().sum();
            at::Tensor failing = parallel(input_that_fails(share(numbers(2, {4, 4}), world))).square().sum();
            EXPECT_THROW(failing.backward(), std::runtime_error);
            for (at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
            fine.backward();
            optimizer.step();
            return values_of(model);
          },
          backend);
      EXPECT_TRUE(same_bits(results[0], results[1])) << backend << ", " << to_text(shard);
      Mlp whole;
      torch::optim::SGD optimizer(whole.parameters(), 0.1);
      (whole.forward(numbers(1, {4, 4})).square().sum() / 2).backward();
      optimizer.step();
      EXPECT_LT(distance(results[0], values_of(whole)), 1e-12) << backend << ", " << to_text(shard);
    }
  }
}

// The kept gradients are being sent, so values that a backward adds to them would be lost.
TEST(Hooks, ABackwardAfterADeadOneIsRefusedWhereItAddsToWhatIsOnItsWay) {
  std::vector<std::string> texts(2, "no error");
  on_ranks(
      2,
      [&](Communicator& world) -> Tensors {
        Mlp model;
        auto parallel = data_parallel(model, world, {.bucket_mb = 0});
        const at::Tensor fine = parallel(share(numbers(1, {4, 4}), world)).square().sum();
        at::Tensor failing = parallel(input_that_fails(share(numbers(2, {4, 4}), world))).square().sum();
        EXPECT_THROW(failing.backward(), std::runtime_error);
        try {
          fine.backward();
        } catch (const InvalidArgument& error) {
          texts[static_cast<std::size_t>(world.rank())] = error.what();
        }
        model.zero_grad();
        parallel(share(numbers(3, {4, 4}), world)).sum().backward();
        return gradients_of(model);
      },
      "tcp");
  EXPECT_THAT(texts, Each(HasSubstr("was added to one that is on its way")));
}

}  // namespace
}  // namespace reigen::parallel::hooks_test
