// Trainer::validate(), test() and predict(), run.weights, runs without validation, and DataModule::prepare().
#include <atomic>

#include "reigen/tensor/tensor_files.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// SmallTask's data, with others for test and predict.
class ThreeKinds : public DataModule {
 public:
  data::DatasetPtr training() override { return made_data(195, at::kDouble, "train"); }
  data::DatasetPtr validation() override { return validates ? made_data(511, at::kDouble, "test") : nullptr; }
  data::DatasetPtr test() override { return made_data(77, at::kDouble, "other"); }
  data::DatasetPtr predict() override { return made_data(predicted, at::kDouble, "predict"); }
  void prepare() override {
    if (prepared) ++*prepared;
  }
  void setup() override {
    if (prepared == nullptr) return;
    EXPECT_EQ(*prepared, 1) << "setup() comes after prepare()";
  }
  bool validates = true;
  std::int64_t predicted = 23;
  std::atomic<int>* prepared = nullptr;
};

class Predicting : public Task {
 public:
  explicit Predicting(int width = 16) : net_(width) { net_.to(at::kDouble); }
  torch::nn::Module& module() override { return net_; }
  std::vector<nn::Unit> units() override { return net_.units; }
  at::Tensor training_step(const data::Samples& batch) override {
    return at::cross_entropy_loss(net_.forward(batch.input), batch.target);
  }
  void test_step(const data::Samples& batch) override {
    log("error", at::cross_entropy_loss(net_.forward(batch.input), batch.target));
  }
  std::int64_t validation_batch() const override { return 4; }
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override {
    if (spoils) return {{"scores", batch.input.narrow(0, 0, 1)}};
    const at::Tensor scores = net_.forward(batch.input);
    return {{"scores", scores}, {"class", scores.argmax(1)}};
  }
  bool spoils = false;

 private:
  SmallNet net_;
};

class EvaluationRun : public TrainerTest {
 protected:
  void train(const std::string& name) {
    run_threads(2, [&](Communicator& world) {
      Predicting task;
      ThreeKinds data;
      Trainer(task, data, world, quiet(config(name))).fit();
    });
  }
  static TrainerOptions quiet(const Config& config) {
    return {.config = config, .write = [](const std::string&) {}};
  }
  // The figures of test(), and the predictions, of a run on so many ranks.
  std::pair<Figures, std::vector<data::NamedTensor>> evaluate(int ranks, const Config& config, int width = 16) {
    std::pair<Figures, std::vector<data::NamedTensor>> result;
    run_threads(ranks, [&](Communicator& world) {
      Predicting task(width);
      ThreeKinds data;
      Trainer trainer(task, data, world, quiet(config));
      const Figures figures = trainer.test();
      auto predictions = trainer.predict();
      EXPECT_EQ(predictions.empty(), world.rank() != 0);
      if (world.rank() == 0) result = {figures, predictions};
    });
    return result;
  }
};

TEST_F(EvaluationRun, GivesTheSameOnAnyNumberOfRanksAndInAnyLayout) {
  train("run");
  Config run = config("run");
  run.run.resume = "true";
  const auto [figures, predictions] = evaluate(1, run);
  EXPECT_EQ(figures.terms, 77);
  ASSERT_EQ(predictions.size(), 2U);
  EXPECT_EQ(predictions[0].second.sizes(), (std::vector<std::int64_t>{23, 4}));
  // By hand, from the weights that the run has written.
  SmallNet net;
  net.to(at::kDouble);
  tensor::read_tensors_into(root_ / "run" / "model.safetensors", tensor::tensors_of(net));
  std::vector<std::int64_t> all(23);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = net.forward(made_data(23, at::kDouble, "predict")->gather(all).input);
  EXPECT_TRUE(at::allclose(predictions[0].second, expected, 1e-12, 1e-12));
  EXPECT_TRUE(at::equal(predictions[1].second, expected.argmax(1)));
  for (const int ranks : {2, 3, 7}) {
    for (const char* shard : {"none", "parameters"}) {
      run.parallel.shard = shard;
      const auto [others, their_predictions] = evaluate(ranks, run);
      EXPECT_NEAR(others.at("error"), figures.at("error"), 1e-12) << ranks << shard;
      EXPECT_TRUE(at::allclose(their_predictions[0].second, expected, 1e-12, 1e-12)) << ranks << shard;
      EXPECT_TRUE(at::equal(their_predictions[1].second, predictions[1].second)) << ranks << shard;
    }
  }
}

TEST_F(EvaluationRun, WeightsComeFromAFileOrARun) {
  train("run");
  Config of_run = config("elsewhere");
  of_run.run.weights = (root_ / "run").string();
  Config of_file = config("elsewhere");
  of_file.run.weights = (root_ / "run" / "model.safetensors").string();
  const auto expected = evaluate(1, of_run);
  EXPECT_NEAR(evaluate(2, of_file).first.at("error"), expected.first.at("error"), 1e-12);
  EXPECT_FALSE(fs::exists(root_ / "elsewhere")) << "an evaluation leaves nothing";
}

TEST_F(EvaluationRun, ATrainingBeginsWithWeightsOfAFile) {
  train("run");
  for (const char* shard : {"none", "parameters"}) {
    Config run = config(std::string("fine") + shard);
    run.run.weights = (root_ / "run" / "model.safetensors").string();
    run.run.save_initial = true;
    run.parallel.shard = shard;
    fit(2, run);
    EXPECT_EQ(read_file(fs::path(run.run.dir) / "initial.safetensors").size(), model("run").size());
    const auto initial = tensor::read_tensors(fs::path(run.run.dir) / "initial.safetensors");
    const auto trained = tensor::read_tensors(root_ / "run" / "model.safetensors");
    ASSERT_EQ(initial.size(), trained.size());
    for (std::size_t i = 0; i < initial.size(); ++i)
      EXPECT_TRUE(at::equal(initial[i].tensor, trained[i].tensor)) << initial[i].name << shard;
  }
}

TEST_F(EvaluationRun, WeightsThatDoNotFitAreNamed) {
  train("run");
  width_ = 8;
  Config run = config("narrow");
  run.run.weights = (root_ / "run" / "model.safetensors").string();
  EXPECT_EQ(failure(2, run), ExitCode::kBadData);
  EXPECT_THAT(failure_text_,
              AllOf(HasSubstr("does not fit the model"), HasSubstr("fc1.weight is [16, 6], the model's is [8, 6]"),
                    HasSubstr("--run.strict false")));
  run.run.strict = false;
  fit(2, run);  // fc2.bias fits
  EXPECT_THAT(output_, HasSubstr("note: run.strict false: of another shape: fc1.weight"));
  run = config("missing");
  run.run.weights = (root_ / "nowhere").string();
  EXPECT_EQ(failure(2, run), ExitCode::kInputMissing);
}

TEST_F(EvaluationRun, WithoutDataForValidationNothingIsValidated) {
  std::string said;
  FitResult result;
  run_threads(2, [&](Communicator& world) {
    Predicting task;
    ThreeKinds data;
    data.validates = false;
    TrainerOptions options{.config = config("run"), .write = [&](const std::string& text) { said += text; }};
    const FitResult mine = Trainer(task, data, world, options).fit();
    if (world.rank() == 0) result = mine;
  });
  EXPECT_EQ(result.steps, 9);
  EXPECT_TRUE(result.validation.values.empty());
  EXPECT_TRUE(validations_of(root_ / "run").empty());
  EXPECT_FALSE(summary("run").contains("test_samples"));
  EXPECT_THAT(said, Not(HasSubstr("result ")));
}

TEST_F(EvaluationRun, OneRankOfAMachinePrepares) {
  std::atomic<int> prepared = 0;
  run_threads(3, [&](Communicator& world) {
    Predicting task;
    ThreeKinds data;
    data.prepared = &prepared;
    Trainer(task, data, world, quiet(config("run"))).fit();
  });
  EXPECT_EQ(prepared, 1);
}

TEST_F(EvaluationRun, TakesTheOptionsOfATraining) {
  train("run");
  Config run = config("run");
  const double expected = [&] {
    run.run.resume = "true";
    return evaluate(1, run).first.at("error");
  }();
  run.optim.schedule.name = "cosine";  // a schedule with an end
  run.train.verify = 3;
  EXPECT_NEAR(evaluate(2, run).first.at("error"), expected, 1e-12);
  std::atomic<int> prepared = 0;
  run_threads(2, [&](Communicator& world) {
    Predicting task;
    ThreeKinds data;
    data.prepared = &prepared;
    Trainer(task, data, world, quiet(run)).test();
  });
  EXPECT_EQ(prepared, 1);
}

TEST_F(EvaluationRun, WithoutACheckpointNothingIsEvaluated) {
  fs::create_directories(root_ / "empty" / "checkpoints");
  Config run = config("empty");
  run.run.resume = "true";
  EXPECT_THAT([&] { evaluate(2, run); },
              ::testing::ThrowsMessage<Error>(HasSubstr("there is no checkpoint to evaluate")));
}

TEST_F(EvaluationRun, RanksWithOtherDataAreRefused) {
  for (const bool is_null : {true, false}) {
    const auto fit = [&] {
      run_threads(3, [&](Communicator& world) {
        struct Other : ThreeKinds {
          data::DatasetPtr validation() override { return is_other ? other : ThreeKinds::validation(); }
          bool is_other = false;
          data::DatasetPtr other = {};
        };
        Predicting task;
        Other data;
        data.is_other = world.rank() == 2;
        if (!is_null) data.other = made_data(510, at::kDouble, "test");
        Trainer(task, data, world, quiet(config("run"))).fit();
      });
    };
    EXPECT_THAT(
        fit, ::testing::ThrowsMessage<Error>(AllOf(HasSubstr("ranks have different data: validation()"),
                                                   HasSubstr(is_null ? "null on rank 2" : "510 samples on rank 2"))));
  }
}

TEST_F(EvaluationRun, ATrainerTrainsAfterItHasEvaluated) {
  train("run");
  train("expected");
  Config run = config("again");
  run.run.weights = (root_ / "run").string();
  Config plain = config("plain");
  plain.run.weights = run.run.weights;
  for (const bool evaluates : {true, false}) {
    run_threads(2, [&](Communicator& world) {
      Predicting task;
      ThreeKinds data;
      Trainer trainer(task, data, world, quiet(evaluates ? run : plain));
      if (evaluates) {
        EXPECT_EQ(trainer.validate().terms, 511);
        EXPECT_THROW(trainer.save_checkpoint(), InvalidArgument);
      }
      EXPECT_EQ(trainer.fit().steps, 9);
    });
  }
  EXPECT_EQ(model("again"), model("plain"));
}

TEST_F(EvaluationRun, PredictionsWithoutARowForEachSampleAreRefused) {
  EXPECT_THAT(
      [&] {
        run_threads(2, [&](Communicator& world) {
          Predicting task;
          task.spoils = true;
          ThreeKinds data;
          Trainer(task, data, world, quiet(config("run"))).predict();
        });
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("predict_step() returned \"scores\" without a row for each sample")));
}

TEST_F(EvaluationRun, ACheckpointIsSavedOnDemand) {
  run_threads(2, [&](Communicator& world) {
    Predicting task;
    ThreeKinds data;
    Trainer trainer(task, data, world, quiet(config("run")));
    EXPECT_THROW(trainer.save_checkpoint(), InvalidArgument);
    trainer.fit();
    EXPECT_EQ(trainer.save_checkpoint().filename(), "step_00000009");
    EXPECT_EQ(trainer.test().terms, 77) << "of the trained weights";
  });
}

}  // namespace
}  // namespace reigen::train
