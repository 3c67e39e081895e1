// How strategies average gradients, and which parameters each bucket has.
#include "reigen/parallel/strategies.h"

#include <gmock/gmock.h>

#include "parallel/oracle.h"

namespace reigen::testing_oracle::strategy_test {
namespace {

using parallel::GradientBucket;
using parallel::GradientStrategy;
using parallel::StrategyFactory;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// A record of the calls of a strategy.
struct Notes {
  std::vector<std::vector<std::string>> buckets;  // names in each bucket, in the order of begin()
  std::vector<std::string> events;                // "bucket" at each begin(), and events that a test adds
};

// Averages the runs of a bucket, or each gradient alone, and notes every bucket.
class Noted : public GradientStrategy {
 public:
  Noted(Communicator world, Notes& notes, bool keeps_zeros)
      : world_(std::move(world)), notes_(notes), keeps_zeros_(keeps_zeros) {}
  std::string description() const override { return "noted"; }
  bool keeps_zeros() const override { return keeps_zeros_; }
  void begin(const GradientBucket& bucket) override {
    notes_.buckets.push_back(bucket.names);
    notes_.events.emplace_back("bucket");
  }
  void end(const GradientBucket& bucket) override {
    if (keeps_zeros_) {
      for (const at::Tensor& run : bucket.runs) average(run);
      return;
    }
    for (const at::Tensor& gradient : bucket.gradients) average(gradient);
  }
  std::uint64_t bytes_given() const override { return 0; }

 private:
  void average(const at::Tensor& tensor) {
    if (tensor.numel() == 0) return;
    world_.all_reduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                      DataType::kFloat64, ReduceOp::kAvg);
  }
  Communicator world_;
  Notes& notes_;
  bool keeps_zeros_;
};

StrategyFactory noted(Notes& notes, bool keeps_zeros) {
  return
      [&notes, keeps_zeros](const Communicator& world) { return std::make_unique<Noted>(world, notes, keeps_zeros); };
}

// Its parts are registered in another order than they run. `side` runs only if `uses_side` is true.
struct Shuffled : torch::nn::Module {
  explicit Shuffled(at::ScalarType type = at::kDouble) {
    third = register_module("third", torch::nn::Linear(9, 3));
    first = register_module("first", torch::nn::Linear(4, 17));
    side = register_module("side", torch::nn::Linear(4, 3));
    second = register_module("second", torch::nn::Linear(17, 9));
    fill(*this, type);
  }
  at::Tensor forward(const at::Tensor& x, bool uses_side = false) {
    const at::Tensor y = third(torch::tanh(second(torch::tanh(first(x)))));
    return uses_side ? y + side(x) : y;
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr}, side{nullptr};
};

TEST(Buckets, AreCutAnewAsGradientsCome) {
  std::vector<Notes> notes(2);
  agreed(2, [&](Communicator& world) {
    Shuffled model;
    Notes& own = notes[static_cast<std::size_t>(world.rank())];
    auto parallel = data_parallel(model, world, {.bucket_mb = 0, .strategy = noted(own, true)});
    Tensors result;
    for (std::uint64_t step = 0; step < 3; ++step) {
      model.zero_grad();
      parallel(share(numbers(step, {4, 4}), world)).sum().backward();
      for (const at::Tensor& gradient : gradients_of(model)) result.push_back(gradient);
    }
    return result;
  });
  for (const Notes& own : notes) {
    ASSERT_EQ(own.buckets.size(), 24U);
    // The first step uses the reverse order of registration, later steps the order in which gradients came. A gradient
    // that never came is last.
    EXPECT_EQ(own.buckets[0][0], "second.bias");
    for (const std::size_t step : {8U, 16U}) {
      EXPECT_THAT(own.buckets[step][0], HasSubstr("third."));
      EXPECT_THAT(own.buckets[step + 2][0], HasSubstr("second."));
      EXPECT_THAT(own.buckets[step + 4][0], HasSubstr("first."));
      EXPECT_THAT(own.buckets[step + 6][0], HasSubstr("side."));
    }
  }
  EXPECT_EQ(notes[0].buckets, notes[1].buckets);
}

// The events of every backward of every rank: its buckets, and the parameters whose gradients are computed.
std::vector<std::vector<std::string>> backwards_of(int ranks, bool overlap) {
  std::vector<std::vector<std::string>> result;
  std::mutex mutex;
  on_ranks(ranks, [&](Communicator& world) {
    Mlp model;
    Notes notes;
    auto parallel = data_parallel(model, world,
                                  {.bucket_mb = 0, .overlap = overlap, .strategy = noted(notes, /*keeps_zeros=*/true)});
    for (const auto& entry : model.named_parameters()) {
      entry.value().register_hook([&notes, name = entry.key()](const at::Tensor&) { notes.events.push_back(name); });
    }
    for (std::uint64_t step = 0; step < 3; ++step) {
      model.zero_grad();
      notes.events.clear();
      parallel(share(numbers(step, {12, 4}), world)).sum().backward();
      const std::lock_guard lock(mutex);
      result.push_back(notes.events);
    }
    return values_of(model);
  });
  return result;
}

TEST(Buckets, TravelWhileBackwardRuns) {
  const auto backwards = backwards_of(3, true);
  EXPECT_EQ(backwards.size(), 9U);
  for (const auto& events : backwards) {
    ASSERT_EQ(events.size(), 12U);
    const auto last_layer = std::find(events.begin(), events.end(), "first.weight");
    ASSERT_NE(last_layer, events.end());
    EXPECT_GE(std::count(events.begin(), last_layer, "bucket"), 4) << "those of the other two layers";
  }
}

TEST(Buckets, TravelBehindBackwardWithoutOverlap) {
  const auto backwards = backwards_of(3, false);
  EXPECT_EQ(backwards.size(), 9U);
  for (const auto& events : backwards) {
    const auto first = std::find(events.begin(), events.end(), "bucket");
    EXPECT_EQ(first - events.begin(), 6);
    EXPECT_EQ(std::count(first, events.end(), "bucket"), events.end() - first);
    EXPECT_NE(first, events.end());
  }
}

// Buckets of several pieces of memory give the same bits as any other buckets.
TEST(Buckets, OfSeveralPiecesGiveTheSameBits) {
  const auto train = [](double bucket_mb, bool overlap) {
    return agreed(3, [&](Communicator& world) {
      Shuffled model;
      auto parallel = data_parallel(model, world, {.bucket_mb = bucket_mb, .overlap = overlap});
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
      for (std::uint64_t step = 0; step < 5; ++step) {
        parallel(share(numbers(step, {6, 4}), world), step % 2 == 1).pow(2).mean().backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      return values_of(model);
    });
  };
  const Tensors expected = train(25, false);
  for (const double bucket_mb : {0.0, 1e-4, 5e-4, 1e-3, 25.0}) {
    EXPECT_TRUE(same_bits(expected, train(bucket_mb, true))) << bucket_mb;
  }
}

// If the strategy does not send the flags, they are sent in a call of their own.
TEST(Strategies, ParametersThatOnlySomeRanksUseNeedNoCarrier) {
  for (const bool keeps_zeros : {true, false}) {
    Notes notes[2];
    agreed(2, [&](Communicator& world) {
      Shuffled model;
      auto parallel =
          data_parallel(model, world, {.strategy = noted(notes[static_cast<std::size_t>(world.rank())], keeps_zeros)});
      Tensors result;
      for (const int who : {0, 1, 2}) {  // 2: no rank
        model.zero_grad();
        parallel(share(numbers(1, {4, 4}), world), world.rank() == who).sum().backward();
        EXPECT_EQ(model.side->weight.grad().defined(), who != 2);
        for (const at::Tensor& gradient : gradients_of(model))
          result.push_back(gradient.defined() ? gradient : at::zeros({1}));
      }
      return result;
    });
  }
}

Tensors train_compressed(Communicator& world, const StrategyFactory& strategy, at::ScalarType type,
                         std::uint64_t* bytes = nullptr) {
  Shuffled model(type);
  auto parallel = data_parallel(model, world, {.bucket_mb = 1e-3, .strategy = strategy});
  Tensors result;
  for (std::uint64_t step = 0; step < 3; ++step) {
    model.zero_grad();
    parallel(share(numbers(step, {12, 4}).to(type), world)).pow(2).mean().backward();
    for (const at::Tensor& gradient : gradients_of(model)) {
      if (gradient.defined()) result.push_back(gradient);
    }
  }
  if (bytes != nullptr) *bytes = parallel.bytes_given();
  return result;
}

double relative_error(const Tensors& exact, const Tensors& got) {
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    worst = std::max(worst, ((got[i] - exact[i]).norm() / exact[i].norm()).item<double>());
  }
  return worst;
}

TEST(Strategies, CompressedGradientsAreRoundedTwice) {
  struct Case {
    at::ScalarType type;
    double step;  // the distance between neighbouring numbers near 1
  };
  for (const auto& [narrow, step] : {Case{at::kBFloat16, 1.0 / 256}, Case{at::kHalf, 1.0 / 2048}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      std::uint64_t bytes[2] = {};
      const Tensors exact = agreed(3, [&, t = type](Communicator& world) {
        return train_compressed(world, parallel::plain(), t, world.rank() == 0 ? &bytes[0] : nullptr);
      });
      const Tensors got = agreed(3, [&, t = type, n = narrow](Communicator& world) {
        return train_compressed(world, parallel::compressed(n), t, world.rank() == 0 ? &bytes[1] : nullptr);
      });
      EXPECT_LT(relative_error(exact, got), step);
      EXPECT_GT(relative_error(exact, got), step / 100);  // something was rounded
      EXPECT_EQ(bytes[0], bytes[1] * c10::elementSize(type) / 2);
    }
  }
}

TEST(Strategies, NarrowGradientsTravelAsTheyAre) {
  const auto train = [](const StrategyFactory& strategy) {
    return agreed(2, [&](Communicator& world) { return train_compressed(world, strategy, at::kBFloat16); });
  };
  EXPECT_TRUE(same_bits(train(parallel::plain()), train(parallel::compressed(at::kBFloat16))));
}

TEST(Strategies, MustBeTheSameOnAllRanks) {
  const auto texts = errors_on(2, [](Communicator& world) {
    Mlp model;
    data_parallel(model, world, {.strategy = world.rank() == 0 ? parallel::plain() : parallel::compressed(at::kHalf)});
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("option strategy: plain"), HasSubstr("option strategy: compressed Half"))));
}

TEST(Strategies, OtherTypesAreRefused) { EXPECT_THROW(parallel::compressed(at::kChar), InvalidArgument); }

}  // namespace
}  // namespace reigen::testing_oracle::strategy_test
