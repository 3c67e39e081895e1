// Task::configure_optimizers().
#include "reigen/optim/sgd.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// A task that takes its optimizer from a function.
class WithOptimizer : public Task, public DataModule {
 public:
  using Choose = std::function<std::optional<OwnOptimizer>(const Config&)>;
  WithOptimizer(const Config& config, Choose choose) : small_(config), choose_(std::move(choose)) {}
  torch::nn::Module& module() override { return small_.module(); }
  data::DatasetPtr training() override { return small_.training(); }
  data::DatasetPtr validation() override { return small_.validation(); }
  at::Tensor training_step(const data::Samples& batch) override { return small_.training_step(batch); }
  std::optional<OwnOptimizer> configure_optimizers(const Config& config) override { return choose_(config); }

 private:
  SmallTask small_;
  Choose choose_;
};

class OwnOptimizerRun : public TrainerTest {
 protected:
  // The weights after a run, and the rates of its steps.
  struct Ran {
    std::string weights;
    std::vector<double> rates;
    bool operator==(const Ran&) const = default;
  };
  Ran ran(const Config& config, int ranks, const WithOptimizer::Choose& choose) {
    run_threads(ranks, [&](const Communicator& world) {
      WithOptimizer task(config, choose);
      Trainer(task, task, world, {.config = config, .write = [](std::string_view) {}}).fit();
    });
    Ran result{.weights = bytes_of(fs::path(config.run.dir) / "model.safetensors"), .rates = {}};
    for (const auto& line : lines_of(config.run.dir)) {
      if (line.contains("lr")) result.rates.push_back(line["lr"]);
    }
    return result;
  }
  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(OwnOptimizerRun, TheRuleGroupsAndRatesOfATaskAreThoseOfTheSameOptions) {
  for (const int ranks : {1, 3}) {
    for (const std::string shard : {"none", "gradients", "parameters"}) {
      const std::string name = std::to_string(ranks) + shard;
      Config by_options = config("options" + name);
      by_options.parallel.shard = shard;
      by_options.optim.rule = optim::SGDOptions{.momentum = 0.9};
      by_options.optim.lr = 0.05;
      by_options.optim.weight_decay = 0.1;
      by_options.optim.no_decay = "*.bias";
      by_options.optim.warmup_steps = 4;
      Config by_task = config("task" + name);
      by_task.parallel.shard = shard;
      const auto nothing = [](const Config&) { return std::optional<OwnOptimizer>(); };
      const auto own = [](const Config& options) {
        EXPECT_EQ(options.train.global_batch, 97);
        return std::optional(OwnOptimizer{
            .rule =
                optim::SGDOptions{
                    .lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .groups = {optim::no_decay({"*.bias"})}},
            .rate = [](std::int64_t step) { return 0.05 * std::min(1.0, static_cast<double>(step + 1) / 4); }});
      };
      const Ran expected = ran(by_options, ranks, nothing);
      const Ran got = ran(by_task, ranks, own);
      ASSERT_EQ(expected.rates.size(), 9U);
      EXPECT_EQ(got, expected) << name;
    }
  }
}

TEST_F(OwnOptimizerRun, AWrongGroupIsRefusedWithItsPattern) {
  const auto with = [](const std::string& pattern) {
    return [=](const Config&) {
      return std::optional(OwnOptimizer{.rule = optim::SGDOptions{.lr = 0.1, .groups = {optim::no_decay({pattern})}}});
    };
  };
  EXPECT_THAT([&] { ran(config("wrong"), 1, with("fc3.*")); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::HasSubstr("a group of the task's optimizer: fc3.* is the name of no parameter")));
  Config both = config("both");
  both.optim.no_decay = "*.bias";
  EXPECT_THAT([&] { ran(both, 1, with("*.bias")); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("groups of parameters of its own")));
}

}  // namespace
}  // namespace reigen::train
