// Tasks that a program defines: without an accuracy, with samples of several tensors, and with errors.
#include <torch/nn/modules/linear.h>

#include "train/small_run.h"

namespace reigen::train {
namespace {

struct TwoInputsNet : torch::nn::Module {
  torch::nn::Linear of_row = register_module("of_row", torch::nn::Linear(4, 8));
  torch::nn::Linear of_mask = register_module("of_mask", torch::nn::Linear(2, 8));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 1));
};

// A regression from two inputs to two targets.
class Regression : public Task, public DataModule {
 public:
  explicit Regression(const Config& config) {
    if (config.train.precision == "fp64") net_.to(at::kDouble);
  }
  torch::nn::Module& module() override { return net_; }
  data::DatasetPtr training() override { return made(195, "train"); }
  data::DatasetPtr validation() override { return made(2, "test"); }  // fewer than there are ranks
  at::Tensor training_step(const data::Samples& batch) override { return losses(batch).mean(); }

 private:
  at::Tensor losses(const data::Samples& samples) {
    const at::Tensor hidden = at::tanh(net_.of_row(samples.at("row")) + net_.of_mask(samples.at("mask")));
    return (net_.out(hidden).squeeze(1) - samples.target).square() * samples.at("weight");
  }
  static data::DatasetPtr made(std::int64_t count, const char* name) {
    const at::Tensor row = at::empty({count, 4}, at::kDouble);
    const at::Tensor mask = at::empty({count, 2}, at::kDouble);
    nn::fill_uniform(row, name, 1, 1.0);
    nn::fill_uniform(mask, name, 2, 1.0);
    return data::in_memory(
        {{"row", row}, {"mask", mask}, {"target", row.sum(1) - mask.sum(1)}, {"weight", mask.select(1, 0).abs()}},
        name);
  }

  TwoInputsNet net_;
};

// training_step() gives no mean, or one that depends on no weight.
template <bool detaches>
class NoLoss final : public Regression {
 public:
  using Regression::Regression;
  at::Tensor training_step(const data::Samples& batch) override {
    const at::Tensor loss = Regression::training_step(batch);
    return detaches ? loss.detach() : at::stack({loss, loss, loss});
  }
};

class OwnTaskTest : public TrainerTest {
 protected:
  template <class MyTask>
  void train(int ranks, const Config& config) {
    output_.clear();
    run_threads(ranks, [&](Communicator& world) {
      MyTask task(config);
      Trainer(task, world, {.config = config, .write = [&](const std::string& text) { output_ += text; }}).fit();
    });
  }
  template <class MyTask>
  std::string refusal(const Config& config) {
    try {
      train<MyTask>(2, config);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
      return error.what();
    }
    return "";
  }
};

TEST_F(OwnTaskTest, AStepWithoutALossIsNamed) {
  EXPECT_THAT(refusal<NoLoss<false>>(config("three")),
              AllOf(HasSubstr("training_step() returns no loss, in step 1"), HasSubstr("a tensor of shape [3]")));
  EXPECT_THAT(refusal<NoLoss<true>>(config("detached")), HasSubstr("a number that depends on no weight"));
}

TEST_F(OwnTaskTest, SeveralTensorsTrainTheSameModelOnAnyNumberOfRanks) {
  std::vector<double> expected;
  for (const int ranks : {1, 2, 3}) {
    const std::string name = std::to_string(ranks);
    Config run = config(name);
    run.train.micro_batch = ranks == 1 ? 0 : 20;
    run.train.verify = 2;
    train<Regression>(ranks, run);
    const auto got = losses(name);
    if (ranks == 1) {
      expected = got;
      ASSERT_EQ(expected.size(), 9U);
      EXPECT_LT(expected[7], expected[0]);
    }
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9 * expected[i]) << ranks;
    EXPECT_THAT(output_, HasSubstr("verified on " + name));
  }
}

TEST_F(OwnTaskTest, WithoutRightAnswersThereIsNoAccuracy) {
  train<Regression>(3, config("run"));
  EXPECT_THAT(output_, AllOf(HasSubstr("test loss "), HasSubstr("(2 samples)"), Not(HasSubstr("accuracy"))));
  EXPECT_FALSE(summary("run").contains("test_accuracy"));
  EXPECT_EQ(summary("run")["test_samples"], 2);
}

class Misspelt final : public Regression {
 public:
  using Regression::Regression;
  at::Tensor training_step(const data::Samples& batch) override { return batch.at("masc"); }
};

TEST_F(OwnTaskTest, ATensorThatIsNotThereIsNamedWithThoseThatAre) {
  EXPECT_THAT(refusal<Misspelt>(config("run")),
              HasSubstr("no tensor of this name\n  got: masc   expected: target, row, mask, weight"));
}

class Single final : public Regression {
 public:
  explicit Single(const Config&) : Regression(Config{}) {}
};

TEST_F(OwnTaskTest, ATaskThatLeavesFp64OutIsRefused) {
  EXPECT_THAT(refusal<Single>(config("run")),
              AllOf(HasSubstr("train.precision fp64"), HasSubstr("of_row.weight is Float")));
}

}  // namespace
}  // namespace reigen::train
