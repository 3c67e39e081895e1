// Models that data_parallel refuses: on every rank, with exit code 78, and with the parameter and both sides in the
// error. Also tests ranks that make fewer steps.
#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/base/deadline.h"

namespace reigen::parallel::data_parallel_refusals_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Flexible : torch::nn::Module {
  void parameter(const std::string& name, const at::Tensor& value, bool trainable = true) {
    register_parameter(name, value, trainable);
  }
  void buffer(const std::string& name, const at::Tensor& value) { register_buffer(name, value); }
  void replace(const std::string& name, const at::Tensor& value) { parameters_[name] = value; }
  void remove(const std::string& name) { parameters_.erase(name); }
  at::Tensor forward() {
    at::Tensor sum = torch::zeros({});
    for (const auto& one : parameters()) sum = sum + one.sum();
    return sum;
  }
};

// The time by which all ranks must have the error (docs/benchmarks.md). They need some 50 ms. A wait for one of the
// communicator's own deadlines would take 10 s or more.
Deadline soon() { return Deadline::after(std::chrono::seconds(2)); }

// The errors of three ranks if `build` makes the last rank's model differ.
std::vector<std::string> mismatch(const std::function<void(Flexible&, bool differs)>& build) {
  const Deadline deadline = soon();
  auto texts = errors_on(3, [&](Communicator& world) {
    Flexible model;
    model.parameter("weight", torch::ones({2, 3}));
    build(model, world.rank() == 2);
    model.parameter("bias", torch::ones({2}));
    data_parallel(model, world);
  });
  EXPECT_FALSE(deadline.expired());
  return texts;
}

TEST(Mismatch, OfNamesIsNamed) {
  EXPECT_THAT(
      mismatch([](Flexible& model, bool differs) { model.parameter(differs ? "b" : "a", torch::ones(1)); }),
      Each(AllOf(HasSubstr("got: rank 2: parameter b: Float [1]"), HasSubstr("rank 0: parameter a: Float [1]"))));
}

TEST(Mismatch, OfShapesIsNamed) {
  EXPECT_THAT(mismatch([](Flexible& model, bool differs) {
                model.parameter("a", torch::ones({4, differs ? 5 : 6}));
              }),
              Each(AllOf(HasSubstr("parameter a: Float [4, 5]"), HasSubstr("parameter a: Float [4, 6]"))));
}

TEST(Mismatch, OfTypesIsNamed) {
  EXPECT_THAT(mismatch([](Flexible& model, bool differs) {
                model.parameter("a", torch::ones(1, differs ? at::kDouble : at::kFloat));
              }),
              Each(AllOf(HasSubstr("parameter a: Double [1]"), HasSubstr("parameter a: Float [1]"))));
}

TEST(Mismatch, OfFrozenParametersIsNamed) {
  EXPECT_THAT(mismatch([](Flexible& model, bool differs) { model.parameter("a", torch::ones(1), !differs); }),
              Each(HasSubstr("parameter a: Float [1] frozen")));
}

TEST(Mismatch, OfCountIsNamed) {
  EXPECT_THAT(mismatch([](Flexible& model, bool differs) {
                if (differs) model.parameter("extra", torch::ones(1));
              }),
              Each(HasSubstr("parameter extra")));
  const auto texts = errors_on(2, [](Communicator& world) {
    Flexible model;
    model.parameter("a", torch::ones(1));
    data_parallel(model, world, {.bucket_mb = world.rank() == 0 ? 25.0 : 24.0});
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("option bucket_mb: 24"), HasSubstr("option bucket_mb: 25"))));
}

TEST(Mismatch, OfBuffersIsNamed) {
  EXPECT_THAT(mismatch([](Flexible& model, bool differs) { model.buffer("mean", torch::ones({differs ? 7 : 8})); }),
              Each(AllOf(HasSubstr("buffer mean: Float [7]"), HasSubstr("buffer mean: Float [8]"))));
}

TEST(Mismatch, IsNotSeenWhereThereIsNone) {
  EXPECT_THAT(mismatch([](Flexible& model, bool) { model.buffer("mean", torch::ones(3)); }), Each("no error"));
}

TEST(Refusals, OptionsOutOfRange) {
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e9}) {
    EXPECT_THAT(errors_on(2,
                          [&](Communicator& world) {
                            Mlp model;
                            data_parallel(model, world, {.bucket_mb = bad});
                          }),
                Each(AllOf(HasSubstr("bucket_mb"), HasSubstr("got: "), HasSubstr("expected: "), HasSubstr("fix: "))));
  }
}

TEST(Refusals, AModelWithNothingToTrain) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Flexible model;
                          model.parameter("a", torch::ones(1), false);
                          data_parallel(model, world);
                        }),
              Each(HasSubstr("nothing to train")));
}

TEST(Refusals, ParametersThatCannotBeAveraged) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Flexible model;
                          model.parameter("a", torch::ones(1, at::kComplexFloat));
                          data_parallel(model, world);
                        }),
              Each(AllOf(HasSubstr("parameter a"), HasSubstr("ComplexFloat"))));
}

TEST(Refusals, AModelThatIsWrappedAlready) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Mlp model;
                          auto first = data_parallel(model, world);
                          data_parallel(model, world);
                        }),
              Each(AllOf(HasSubstr("first.weight"), HasSubstr("wrapped already"))));
}

std::vector<std::string> changed(const std::function<void(Flexible&)>& change) {
  return errors_on(2, [&](Communicator& world) {
    Flexible model;
    model.parameter("a", torch::ones(3));
    model.parameter("b", torch::ones(3));
    model.parameter("cold", torch::ones(3), false);
    auto parallel = data_parallel(model, world);
    parallel().backward();
    change(model);
    parallel();
  });
}

TEST(Refusals, AModelThatChangedAfterWrapping) {
  EXPECT_THAT(changed([](Flexible& model) { model.replace("b", torch::ones(3).requires_grad_()); }),
              Each(AllOf(HasSubstr("parameter b"), HasSubstr("replaced"))));
  EXPECT_THAT(changed([](Flexible& model) { model.remove("b"); }),
              Each(AllOf(HasSubstr("parameter b"), HasSubstr("removed"))));
  EXPECT_THAT(changed([](Flexible& model) { model.parameter("c", torch::ones(3)); }),
              Each(AllOf(HasSubstr("parameter c"), HasSubstr("added"))));
  EXPECT_THAT(changed([](Flexible& model) { model.to(at::kDouble); }),
              Each(AllOf(HasSubstr("parameter a"), HasSubstr("moved or converted"))));
  EXPECT_THAT(changed([](Flexible& model) { model.parameters()[1].set_data(torch::ones(3)); }),
              Each(AllOf(HasSubstr("parameter b"), HasSubstr("moved or converted"))));
  EXPECT_THAT(changed([](Flexible& model) { model.parameters()[2].set_requires_grad(true); }),
              Each(AllOf(HasSubstr("parameter cold"), HasSubstr("unfrozen"))));
  EXPECT_THAT(changed([](Flexible&) {}), Each("no error"));
}

// A rank makes one step less, and then the call after the loop, or no call.
TEST(Failures, ARankThatSkipsAStepIsNamed) {
  for (const bool reports : {false, true}) {
    std::vector<std::string> texts(3);
    const Deadline deadline = soon();
    try {
      run_threads(3, [&](Communicator& world) {
        Mlp model;
        auto parallel = data_parallel(model, world);
        try {
          for (int step = 0; step < 5; ++step) {
            if (world.rank() == 1 && step == 2) continue;
            parallel(numbers(1, {4, 4})).square().mean().backward();
          }
          double loss = 1;
          if (reports) world.all_reduce(&loss, &loss, 1, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss"});
        } catch (const Error& error) {
          texts[static_cast<std::size_t>(world.rank())] = error.what();
        }
      });
    } catch (const Error&) {  // NOLINT: the ranks have reported it
    }
    EXPECT_FALSE(deadline.expired());
    for (const int rank : {0, 2}) {
      EXPECT_THAT(texts[static_cast<std::size_t>(rank)],
                  ::testing::AllOf(::testing::HasSubstr("rank 1"),
                                   ::testing::HasSubstr("step 4 bucket 0: gradients of first.weight to third.bias")))
          << reports;
    }
    if (reports) {
      EXPECT_THAT(texts[1], ::testing::AllOf(::testing::HasSubstr("loss"), ::testing::HasSubstr("rank 0")));
    }
  }
}

// The same with a loop that goes on. The calls of the ranks are alike, but their step numbers differ.
TEST(Failures, ARankThatLeavesANumberedStepOutIsToldApartAtItsNext) {
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer, Shard::kGradients}) {
    std::vector<std::string> texts(3);
    std::vector<int> steps(3);
    const Deadline deadline = soon();
    EXPECT_THROW(run_threads(3,
                             [&](Communicator& world) {
                               const auto rank = static_cast<std::size_t>(world.rank());
                               Mlp model;
                               auto parallel = data_parallel(model, world, {.shard = shard});
                               auto optimizer = optim::SGD(parallel.parameters(), {.lr = 0.1});
                               try {
                                 for (int step = 0; step < 50; ++step) {
                                   if (rank == 1 && step == 20) continue;
                                   parallel.number_step(step);
                                   parallel(numbers(1, {4, 4})).square().mean().backward();
                                   optimizer.step();
                                   optimizer.zero_grad();
                                   ++steps[rank];
                                 }
                               } catch (const Error& error) {
                                 texts[rank] = error.what();
                                 throw;
                               }
                             }),
                 CollectiveMismatch);
    EXPECT_FALSE(deadline.expired()) << to_text(shard);
    EXPECT_THAT(texts, Each(AllOf(HasSubstr("step 20 "), HasSubstr("step 21 "), HasSubstr("rank 1"),
                                  HasSubstr("gradients of first.weight to third.bias"))))
        << to_text(shard);
    EXPECT_THAT(steps, Each(20)) << to_text(shard);
  }
}

TEST(Failures, AnExceptionInForwardOnOneRankEndsAll) {
  std::vector<std::string> texts(3);
  const Deadline deadline = soon();
  try {
    run_threads(3, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world);
      try {
        for (int step = 0; step < 3; ++step) {
          const at::Tensor loss = parallel(numbers(1, {4, 4})).square().mean();
          if (world.rank() == 1 && step == 1) throw std::runtime_error("planned");
          loss.backward();
        }
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(world.rank())] = error.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("planned"));
  }
  EXPECT_FALSE(deadline.expired());
  for (const int rank : {0, 2}) {
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)],
                ::testing::AllOf(::testing::HasSubstr("rank 1"),
                                 ::testing::HasSubstr("step 1 bucket 0: gradients of first.weight to third.bias")));
  }
}

}  // namespace
}  // namespace reigen::parallel::data_parallel_refusals_test
