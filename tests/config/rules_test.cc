// Combinations of options that are refused, and what the errors say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/reading.h"

namespace reigen::config {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  std::vector<std::string> arguments;
  std::string what;
  std::string fix;
};

void expect_refused(const std::vector<Refusal>& cases) {
  for (const Refusal& c : cases) {
    const Failure failure = failure_of(c.arguments);
    EXPECT_EQ(failure.code, ExitCode::kConfiguration) << failure.text;
    EXPECT_THAT(failure.text, ::testing::AllOf(HasSubstr(c.what), HasSubstr(c.fix)));
  }
}

TEST(Rules, OptionsThatAnOptimizerLacksAreRefusedNamingThoseThatHaveThem) {
  expect_refused({
      {{"--optim.momentum", "0.9"}, "adamw has no momentum", "choose optim.name sgd or rmsprop or lars"},
      {{"--optim.nesterov", "--optim.name", "lion"}, "optim.nesterov = true: optim.name lion has no nesterov", "sgd"},
      {{"--optim.beta1", "0.8", "--optim.name", "sgd"}, "sgd has no beta1", "adamw or adam or lion or lamb"},
      {{"--optim.beta2", "0.8", "--optim.name", "lars"}, "lars has no beta2", "lion"},
      {{"--optim.eps", "1e-6", "--optim.name", "lion"}, "lion has no eps", "rmsprop"},
      {{"--optim.amsgrad", "--optim.name", "lamb"}, "lamb has no amsgrad", "adam"},
      {{"--optim.alpha", "0.9"}, "adamw has no alpha", "rmsprop"},
      {{"--optim.centered"}, "adamw has no centered", "rmsprop"},
      {{"--optim.lr_decay", "0"}, "adamw has no lr_decay", "adagrad"},
      {{"--optim.trust_coefficient", "0.1", "--optim.name", "lamb"}, "lamb has no trust_coefficient", "lars"},
      {{"--optim.bf16_states", "--optim.name", "adagrad"}, "adagrad has no bf16_states", "lion"},
      {{"--optim.no_adapt", "none"}, "adamw has no no_adapt", "lars or lamb"},
      {{"--optim.gamma", "0.5"}, "constant has no gamma", "choose optim.schedule step or multi_step"},
      {{"--optim.min_lr_factor", "0", "--optim.schedule", "one_cycle"}, "one_cycle has no min_lr_factor", "cosine"},
      {{"--optim.milestones", "3", "--optim.schedule", "step"}, "step has no milestones", "multi_step"},
      {{"--optim.schedule", "step"}, "optim.schedule = step needs optim.step_size", "set optim.step_size: "},
      {{"--optim.schedule", "multi_step"}, "optim.schedule = multi_step needs optim.milestones", "1000,2000"},
      {{"--optim.schedule", "multi_step", "--optim.milestones", "3,2"}, "must be steps or epochs in rising order", ""},
      {{"--optim.schedule", "warmup_stable_decay"}, "needs optim.decay_steps", ""},
      {{"--optim.lr_scaling", "linear"}, "optim.lr_scaling = linear needs optim.base_batch", "set optim.base_batch: "},
      {{"--optim.base_batch", "256"},
       "optim.lr_scaling none has no base_batch",
       "choose optim.lr_scaling linear or sqrt"},
      {{"--train.loss_scale", "8"}, "train.precision fp32 has no loss_scale", "choose train.precision fp16"},
      {{"--optim.name", "sgd", "--optim.nesterov"}, "optim.nesterov needs optim.momentum", ""},
      {{"--optim.bf16_states", "--train.precision", "fp64"},
       "train.precision fp64 do not go together",
       "leave one of the two out"},
      {{"--optim.bf16_states", "--optim.amsgrad"}, "do not go together", ""},
      {{"--optim.bf16_states", "--optim.name", "sgd"}, "needs optim.momentum: sgd without it has no state", "0.9"},
      {{"--optim.name", "sgd", "--optim.dampening", "0.1"}, "optim.dampening needs optim.momentum", "as 0.9"},
      {{"--train.weights", "bf16", "--train.precision", "bf16", "--train.verify", "1"},
       "train.weights bf16 and train.verify do not go together: the check compares fp32 weights",
       ""},
      {{"--train.graph", "step", "--train.precision", "fp16"}, "the loss scale changes", "choose train.precision bf16"},
      {{"--train.graph", "step", "--train.activation_checkpoint", "1"}, "do not go together", "one of the two"},
      {{"--stop.patience", "5"}, "stop.patience needs stop.monitor", "set stop.monitor: end when"},
      {{"--stop.threshold", "0.5"}, "stop.threshold needs stop.monitor", ""},
      {{"--checkpoint.top_k", "2"}, "checkpoint.top_k needs checkpoint.monitor", ""},
      {{"--checkpoint.every", "5", "--checkpoint.every_steps", "5"}, "they say the same", "checkpoint.every_steps out"},
      {{"--run.fast_dev", "2", "--run.dir", "x"}, "run.fast_dev leaves nothing on the disk", ""},
      {{"--run.find_lr", "--run.fast_dev", "2"}, "run.find_lr and run.fast_dev do not go together", ""},
      {{"--log.tensorboard", "false", "--log.images", "2"}, "log.images is written for TensorBoard", ""},
      {{"--train.max_time", "5 epochs"}, "train.max_time is a time", "train.max_steps"},
      {{"--optim.no_decay", "a,,b"}, "optim.no_decay = a,,b: an item is empty", ""},
      {{"--optim.lr_factors", "head"}, "head is no name with a factor", "head.*=10"},
      {{"--optim.lr_factors", "head=-1"}, "head=-1 is no name with a factor", ""},
      {{"--optim.beta1", "1"}, "optim.beta1 = 1: must be a number of at least 0", ""},
      {{"--optim.ema_decay", "1"}, "optim.ema_decay = 1: must be", ""},
      {{"--train.clip_norm", "-1"}, "train.clip_norm = -1: must be", ""},
      {{"--train.precision", "fp8"}, "train.precision = fp8: must be", "bf16"},
  });
}

TEST(Rules, OptionsThatAStrategyOrAShardLacksAreRefused) {
  expect_refused({
      {{"--parallel.every", "4"}, "plain has no every", "local_sgd or hierarchical_sgd or diloco"},
      {{"--parallel.topology", "exponential", "--parallel.strategy", "top_k"}, "top_k has no topology", "gossip"},
      {{"--parallel.matrix_rank", "0", "--parallel.strategy", "power_sgd"}, "parallel.matrix_rank = 0: must be", ""},
      {{"--parallel.share", "0", "--parallel.strategy", "top_k"}, "parallel.share = 0: must be", ""},
      {{"--parallel.strategy", "gosip"}, "parallel.strategy = gosip: must be", "gossip"},
      {{"--parallel.strategy", "one_bit", "--train.precision", "fp16"}, "do not go together", "bf16"},
      {{"--parallel.shard", "optimizer", "--parallel.strategy", "local_sgd"}, "do not go together", "one of the two"},
      {{"--parallel.unit_size", "1000"},
       "parallel.unit_size = 1000: parallel.shard auto has no unit_size",
       "choose parallel.shard gradients or parameters, or leave parallel.unit_size out"},
      {{"--parallel.reshard_to", "2"}, "parallel.shard auto has no reshard_to", "choose parallel.shard parameters"},
      {{"--parallel.reshard_after_forward", "false"}, "parallel.shard auto has no reshard_after_forward", "parameters"},
      {{"--parallel.replicas", "2"}, "parallel.shard auto has no replicas", "optimizer or gradients or parameters"},
      {{"--parallel.shard", "parameters", "--parallel.reshard_to", "2", "--parallel.reshard_after_forward", "false"},
       "parallel.reshard_to and parallel.reshard_after_forward false do not go together",
       "leave one of the two out"},
      {{"--parallel.shard", "parameters", "--parallel.strategy", "bf16"},
       "parallel.shard parameters and parallel.strategy bf16 do not go together",
       "choose parallel.strategy plain"},
      {{"--mesh.sequence"}, "mesh.sequence needs mesh.tp", "set mesh.tp to another value than 1: "},
      {{"--mesh.schedule", "gpipe"}, "mesh.schedule needs mesh.pp", "set mesh.pp to another value than 1: "},
      {{"--mesh.virtual_stages", "2", "--mesh.tp", "2"}, "mesh.virtual_stages needs mesh.pp", ""},
      {{"--mesh.cut", "time"}, "mesh.cut needs mesh.pp", ""},
      {{"--mesh.tp", "2", "--run.save_initial"},
       "ranks hold parts of the weights",
       "start the run once without mesh.tp"},
      {{"--mesh.pp", "2", "--train.not_finite", "rollback", "--checkpoint.every", "5"},
       "mesh.pp and train.not_finite rollback do not go together",
       "choose train.not_finite stop or skip"},
      {{"--mesh.tp", "2", "--parallel.strategy", "one_bit"},
       "keeps errors of this rank's gradients",
       "leave mesh.tp out"},
      {{"--mesh.pp", "2", "--parallel.strategy", "local_sgd"}, "has weights of its own", "leave mesh.pp out"},
      {{"--mesh.pp", "2", "--parallel.shard", "parameters", "--parallel.unit_size", "5"}, "the model's own units", ""},
      {{"--mesh.pp", "2", "--train.graph", "step"}, "mesh.pp and train.graph do not go together", ""},
      {{"--parallel.gather_type", "bf16"},
       "parallel.shard auto has no gather_type",
       "choose parallel.shard parameters"},
      {{"--parallel.shard", "gradients", "--parallel.gather_type", "bf16"},
       "parallel.gather_type = bf16: parallel.shard gradients has no gather_type",
       "choose parallel.shard parameters"},
      {{"--parallel.reduce_type", "fp16"}, "parallel.shard auto has no reduce_type", "gradients or parameters"},
      {{"--parallel.shard", "gradients", "--parallel.bucket_mb", "5"},
       "parallel.shard gradients and parallel.bucket_mb 5 do not go together",
       "choose parallel.shard optimizer or none"},
  });
}

}  // namespace
}  // namespace reigen::config
