// Runs that recompute activations must train to the same bits.
#include "reigen/train/decoder_task.h"
#include "reigen/train/mlp_task.h"
#include "reigen/train/program.h"
#include "reigen/train/resnet18_task.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

using MakeTask = std::function<Training()>;

class ActivationCheckpointRun : public TrainerTest {
 protected:
  std::string trained(const MakeTask& make, const std::string& name, std::int64_t every,
                      const std::string& precision = "fp32", const std::string& keep = "none") {
    const std::string directory = name + std::to_string(every) + keep;
    Config run = config(directory);
    run.train.activation_keep = keep;
    run.train.precision = precision;
    run.train.global_batch = 6;
    run.train.max_steps = 3;
    run.train.activation_checkpoint = every;
    run_threads(2, [&](Communicator& world) {
      const Training made = make();
      Trainer(*made.task, *made.data, world, {.config = run, .write = [](const std::string&) {}}).fit();
    });
    return model(directory);
  }
};

TEST_F(ActivationCheckpointRun, TrainsToTheSameBits) {
  const std::vector<std::pair<std::string, MakeTask>> tasks{
      {"mlp", [] { return as_both(std::make_shared<MlpTask>(MlpTaskOptions{.layers = 3, .dim = 16})); }},
      {"resnet18", [] { return as_both(std::make_shared<ResNet18Task>(ResNet18TaskOptions{.width = 4})); }},
      {"gpt", [] {
         return as_both(std::make_shared<GptTask>(
             GptTaskOptions{.model = {.vocab = 0, .layers = 2, .dim = 16, .heads = 2, .context = 32}}));
       }}};
  for (const auto& [name, make] : tasks) {
    const std::string kept = trained(make, name, 0);
    EXPECT_FALSE(kept.empty());
    EXPECT_TRUE(trained(make, name, 1) == kept) << name;
    EXPECT_TRUE(trained(make, name, 2) == kept) << name;
    EXPECT_TRUE(trained(make, name, 1, "fp32", "products") == kept) << name;
  }
}

// After recomputation, no 16-bit copies of old weights may remain.
TEST_F(ActivationCheckpointRun, TrainsToTheSameBitsIn16Bits) {
  const MakeTask make = [] { return as_both(std::make_shared<MlpTask>(MlpTaskOptions{.layers = 3, .dim = 16})); };
  const std::string kept = trained(make, "mlp", 0, "bf16");
  EXPECT_FALSE(kept.empty());
  EXPECT_TRUE(trained(make, "mlp", 1, "bf16") == kept);
  EXPECT_TRUE(trained(make, "mlp", 1, "bf16", "products") == kept);
}

TEST_F(ActivationCheckpointRun, NeedsUnits) {
  Config run = config("run");
  run.train.activation_checkpoint = 1;
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("the model of small has no units"));
}

TEST_F(ActivationCheckpointRun, KeepingNeedsUnitsThatComputeAgain) {
  Config run = config("run");
  run.train.activation_keep = "products";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.activation_keep is for units that compute activations again"));
}

}  // namespace
}  // namespace reigen::train
