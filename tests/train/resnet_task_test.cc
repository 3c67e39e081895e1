// The task of ResNet: its loss, its figures, and a training on one and two ranks. What is left out of weight decay.
#include "reigen/train/resnet_task.h"
#include "reigen/train/mixed_loss.h"

#include <set>

#include "reigen/tensor/flat_parameters.h"
#include "reigen/train/ready_tasks.h"
#include "train/optimizer/parameter_groups.h"
#include "train/small_run.h"
#include "train/tasks/classification.h"
#include "train/tasks/imagenet.h"

namespace reigen::train {
namespace {

// 16 random pictures of 64 x 64 in 6 classes, for training and validation.
class Pictures final : public DataModule {
 public:
  data::DatasetPtr training() override { return data_; }
  data::DatasetPtr validation() override { return data_; }

 private:
  static data::DatasetPtr make() {
    const at::Tensor input = at::empty({16, 3, 64, 64}, at::kDouble);
    nn::fill_uniform(input, "pictures", 3, 1.0);
    return data::in_memory(input, at::arange(16, at::kLong).remainder(6), "random pictures");
  }
  data::DatasetPtr data_ = make();
};

class ResNetTaskTest : public TrainerTest {
 protected:
  // 4 samples are a part of batch normalisation, so parts are the same on one rank and on two.
  FitResult train(int ranks, Config config, double label_smoothing = 0.1) {
    FitResult result;
    run_threads(ranks, [&](Communicator& world) {
      ResNetTask task({.model = {.depth = 18, .classes = 6, .width = 8, .norm_batch = 4, .zero_last_norm = true},
                       .type = at::kDouble,
                       .without_memory = ranks > 1,
                       .label_smoothing = label_smoothing});
      Pictures pictures;
      const FitResult mine =
          Trainer(task, pictures, world,
                  {.name = "resnet", .config = config, .write = [&](const std::string& text) { output_ += text; }})
              .fit();
      if (world.rank() == 0) result = mine;
    });
    return result;
  }
  Config steps_of(const std::string& directory) const {
    Config config = this->config(directory);
    config.train.epochs = 16;
    config.train.global_batch = 16;
    config.optim.rule = optim::SGDOptions{.momentum = 0.9};
    config.optim.lr = 0.05;
    return config;
  }
};

TEST_F(ResNetTaskTest, LearnsThePicturesAndTellsTopOneAndTopFive) {
  const FitResult result = train(1, steps_of("one"));
  const std::vector<double> told = losses("one");
  ASSERT_EQ(told.size(), 16U);
  EXPECT_LT(told.back(), 0.7 * told.front());
  const double top1 = result.validation.at("test_accuracy");
  const double top5 = result.validation.at("test_accuracy_top5");
  EXPECT_GE(top5, top1);
  EXPECT_NEAR(top5 * 16, std::round(top5 * 16), 1e-9);
  EXPECT_TRUE(std::isfinite(result.validation.at("test_loss")));
  EXPECT_THAT(output_, HasSubstr(fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss", top1 * 100, top5 * 100)));
}

TEST_F(ResNetTaskTest, TwoRanksTrainAsOne) {
  for (const char* shard : {"none", "parameters"}) {
    Config one = steps_of(std::string("one_") + shard);
    one.train.epochs = 4;
    one.optim.ema_decay = 0.5;
    const FitResult alone = train(1, one);
    Config two = one;
    two.run.dir = (root_ / (std::string("two_") + shard)).string();
    two.parallel.shard = shard;
    two.parallel.buffers = "average";
    const FitResult both = train(2, two);
    const std::vector<double> expected = losses(one.run.dir);
    const std::vector<double> found = losses(two.run.dir);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << shard << i;
    EXPECT_TRUE(fs::exists(fs::path(two.run.dir) / "model_ema.safetensors"));
    EXPECT_EQ(both.validation.terms, alone.validation.terms);
  }
}

// Each rank holds some of the units. A micro-batch is one part of batch normalisation.
TEST_F(ResNetTaskTest, APipelineTrainsAsOneRank) {
  Config one = steps_of("one");
  one.train.epochs = 3;
  train(1, one);
  Config stages = one;
  stages.run.dir = (root_ / "stages").string();
  stages.mesh.pp = 2;
  stages.train.micro_batch = 4;
  train(2, stages);
  const std::vector<double> expected = losses("one");
  const std::vector<double> found = losses("stages");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << i;
}

TEST(LossOfClasses, SmoothsLabelsAsPyTorchDoes) {
  const at::Tensor scores = at::sin(1 + at::arange(12, at::kDouble)).mul(2).view({3, 4});
  const at::Tensor target = at::tensor({0, 3, 2}, at::kLong);
  const at::Tensor log_p = at::log_softmax(scores, 1);
  const at::Tensor plain = -log_p.gather(1, target.unsqueeze(1)).mean();
  // From Python: torch.nn.functional.cross_entropy(scores, target, label_smoothing=s).
  for (const auto& [s, pytorch] :
       {std::pair(0.0, 1.4990266784821458), std::pair(0.1, 1.5565055260297362), std::pair(0.5, 1.7864209162200977)}) {
    const double found = loss_of_classes(scores, target, s).item<double>();
    EXPECT_NEAR(found, pytorch, 1e-12) << s;
    EXPECT_NEAR(found, (plain * (1 - s) - log_p.mean() * s).item<double>(), 1e-12) << s;
  }
}

TEST_F(ResNetTaskTest, ValidationTellsThePlainLoss) {
  ResNetTask smooth({.model = {.depth = 18, .classes = 6, .width = 4}, .type = at::kDouble, .label_smoothing = 0.2});
  smooth.initialize(1);
  smooth.module().eval();
  Pictures pictures;
  std::vector<std::int64_t> all(16);
  for (std::int64_t i = 0; i < 16; ++i) all[static_cast<std::size_t>(i)] = i;
  const data::Samples batch = pictures.training()->gather(all);
  const at::Tensor scores = smooth.module().forward(batch.input);
  Metrics metrics;
  metrics.begin_batch(16);
  const LogTo to(smooth, &metrics);
  smooth.validation_step(batch);
  metrics.finish(metrics.take());
  const double told = metrics.gather(Communicator()).at("test_loss");
  EXPECT_NEAR(told, at::cross_entropy_loss(scores, batch.target).item<double>(), 1e-12);
  EXPECT_GT(std::abs(told - smooth.training_step(batch).item<double>()), 1e-3);
  EXPECT_THROW(ResNetTask({.label_smoothing = 1}), InvalidArgument);
}

TEST_F(ResNetTaskTest, ATaskOfAModelAloneSmoothsLabelsToo) {
  const auto net = std::make_shared<models::ResNet>(models::ResNetOptions{.depth = 18, .classes = 6, .width = 4});
  net->to(at::kDouble);
  net->initialize(1);
  net->eval();
  const at::Tensor input = at::randn({4, 3, 64, 64}, at::kDouble);
  const data::Samples batch{.input = input, .target = at::tensor({0, 5, 2, 3}, at::kLong)};
  const auto task = classification(net, {.label_smoothing = 0.3});
  EXPECT_NEAR(task->training_step(batch).item<double>(),
              loss_of_classes(net->forward(input), batch.target, 0.3).item<double>(), 1e-12);
  EXPECT_EQ(task->units().size(), net->units().size());
  EXPECT_THROW(classification(net, {.label_smoothing = -0.1}), InvalidArgument);
}

// The parameters of the groups without weight decay, and whether their rate follows norms.
std::set<std::string> without_decay(const std::string& preset, const std::vector<ParameterRange>& ranges, bool adapt) {
  const Config config = config::read_command_line(imagenet_defaults(), {"--run.preset", preset}, {}).config;
  std::set<std::string> names;
  for (const optim::ParameterGroup& group : parameter_groups(config.optim, ranges)) {
    EXPECT_EQ(group.weight_decay, 0.0);
    EXPECT_EQ(group.adapt, adapt);
    EXPECT_EQ(group.lr_factor, 1);
    for (const std::string& name : group.patterns) EXPECT_TRUE(names.insert(name).second) << name;
  }
  return names;
}

TEST(GroupsOfResNet50, GoyalLeavesNormsOutOfWeightDecayAndLarsBiasesToo) {
  models::ResNet model({.depth = 50, .width = 2});
  std::set<std::string> norms;
  for (const auto& item : model.named_modules("", false)) {
    if (dynamic_cast<torch::nn::BatchNorm2dImpl*>(item.value().get()) == nullptr) continue;
    norms.insert(item.key() + ".weight");
    norms.insert(item.key() + ".bias");
  }
  EXPECT_EQ(norms.size(), 106U) << "53 norms";
  const tensor::FlatParameters flat(tensor::named_parameters(model), Communicator());
  EXPECT_EQ(without_decay("goyal", flat.ranges(), /*adapt=*/false), norms);
  norms.insert("fc.bias");
  EXPECT_EQ(without_decay("lars", flat.ranges(), /*adapt=*/false), norms);
}

TEST(MixedLoss, IsTheWeightedMeanOfBothTargets) {
  const at::Tensor scores = at::arange(12, at::kDouble).remainder(5).reshape({3, 4});
  data::Samples batch{.target = at::tensor({0, 1, 2}, at::kLong)};
  EXPECT_TRUE(mixed_cross_entropy(scores, batch).equal(at::cross_entropy_loss(scores, batch.target)));
  batch.more = {{"mixed_target", at::tensor({3, 1, 0}, at::kLong)}, {"mixed_weight", at::tensor({0.25F, 1.0F, 0.5F})}};
  const at::Tensor log_p = at::log_softmax(scores, 1);
  const double expected =
      -(0.25 * log_p[0][0] + 0.75 * log_p[0][3] + log_p[1][1] + 0.5 * log_p[2][2] + 0.5 * log_p[2][0]).item<double>() /
      3;
  EXPECT_NEAR(mixed_cross_entropy(scores, batch).item<double>(), expected, 1e-12);
}

}  // namespace
}  // namespace reigen::train
