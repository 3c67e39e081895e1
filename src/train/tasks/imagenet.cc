#include "train/tasks/imagenet.h"

#include "train/tasks/kernels_option.h"

namespace reigen::train {
namespace {

// Values that mean nothing to another optimizer than that of the preset.
const std::vector<std::string> kOfOptimizer = {"optim.name"};
const std::vector<std::string> kOfWarmUp = {"optim.name", "optim.warmup_steps"};

config::Preset goyal() {
  return {
      .name = "goyal",
      .meaning = "ImageNet in 1 hour, for any batch up to 8192 (Goyal et al., 2017, arXiv:1706.02677)",
      .values = {
          {"train.epochs", "90", "section 5.1"},
          {"optim.name", "sgd", "section 5.1"},
          {"optim.momentum", "0.9", "section 5.1"},
          {"optim.nesterov", "true", "section 5.1"},
          {.option = "optim.lr", .value = "0.1", .source = "section 5.1", .unless = kOfOptimizer},
          {.option = "optim.lr_scaling",
           .value = "linear",
           .source = "section 2.1: 0.1 x batch / 256",
           .unless = kOfOptimizer},
          {.option = "optim.base_batch", .value = "256", .source = "section 2.1", .unless = kOfOptimizer},
          {.option = "optim.warmup", .value = "5 epochs", .source = "section 2.2", .unless = {"optim.warmup_steps"}},
          {.option = "optim.warmup_from",
           .value = "0.1",
           .source = "section 2.2: from the rate of a batch of 256",
           .unless = kOfWarmUp},
          {"optim.schedule", "multi_step", "section 5.1"},
          {"optim.gamma", "0.1", "section 5.1"},
          {"optim.milestones", "30 epochs, 60 epochs, 80 epochs", "section 5.1"},
          {.option = "optim.weight_decay", .value = "0.0001", .source = "section 5.1", .unless = kOfOptimizer},
          {"optim.no_decay", "*bn?.*,*downsample.1.*", "section 5.1: not on gamma and beta of norms"},
          {"model.norm_batch", "32", "sections 2.3 and 5.1: statistics of 32 samples, for any number of ranks"},
          {"model.zero_last_norm", "true", "section 5.1: gamma of a block's last norm begins as 0"},
          {"model.classifier_deviation", "0.01", "section 5.1"},
      }};
}

// The rates are those of MLPerf's reference (resnet_run_loop.py of mlcommons/training, function poly_rate_fn).
config::Preset lars() {
  constexpr std::int64_t k4 = 4096;
  constexpr std::int64_t k8 = 8192;
  constexpr std::int64_t k16 = 16384;
  constexpr std::int64_t k32 = 32768;
  const char* const rates = "MLPerf's poly_rate_fn";
  const auto rate = [&](const char* value, std::int64_t from, std::int64_t below) {
    return config::PresetValue{.option = "optim.lr",
                               .value = value,
                               .source = rates,
                               .from_batch = from,
                               .below_batch = below,
                               .unless = kOfOptimizer};
  };
  const auto small = [](const char* option, const char* value) {
    return config::PresetValue{.option = option,
                               .value = value,
                               .source = "Reigen's choice: the tables begin at 4096",
                               .below_batch = k4,
                               .unless = kOfOptimizer};
  };
  config::Preset preset{.name = "lars",
                        .meaning = "LARS for batches of 4096 to 32768 (You et al., 2017, arXiv:1708.03888; MLPerf)"};
  preset.values = {
      {"train.epochs", "90", "You et al.; MLPerf's poly_rate_fn"},
      {"train.global_batch", "4096", "the smallest batch of the tables"},
      {"train.label_smoothing", "0.1", "MLPerf's reference command"},
      {"optim.name", "lars", "You et al., algorithm 1"},
      {"optim.momentum", "0.9", "You et al.; MLPerf's reference command"},
      {"optim.trust_coefficient", "0.001", "You et al.; the default of MLPerf's optimizer"},
      rate("5.0", 0, k8),
      small("optim.lr_scaling", "linear"),
      small("optim.base_batch", "4096"),
      rate("10.0", k8, k16),
      rate("25.0", k16, k32),
      rate("32.0", k32, std::numeric_limits<std::int64_t>::max()),
      {.option = "optim.warmup",
       .value = "5 epochs",
       .source = rates,
       .below_batch = k32,
       .unless = {"optim.warmup_steps"}},
      {.option = "optim.warmup",
       .value = "14 epochs",
       .source = rates,
       .from_batch = k32,
       .unless = {"optim.warmup_steps"}},
      {"optim.schedule", "polynomial", "You et al.: poly(2)"},
      {"optim.power", "2.0", "You et al.; MLPerf's poly_rate_fn"},
      {.option = "optim.weight_decay",
       .value = "0.0002",
       .source = "MLPerf's reference command",
       .unless = kOfOptimizer},
      {"optim.no_decay", "@vectors", "MLPerf's reference: not on norms and biases, whose rate follows no norm either"},
  };
  return preset;
}

}  // namespace

std::vector<config::Preset> imagenet_presets() { return {goyal(), lars()}; }

Config imagenet_defaults() {
  Config config;
  config.run.presets = imagenet_presets();
  config.train.epochs = 90;
  config.train.takes_label_smoothing = true;
  config.optim.warmup = "5 epochs";
  config.model.options = {
      {"classes", 0, "classes of the pictures; 0: as many as the data name", 0},
      {"depth", 50, "layers of the ResNet: 18, 34, 50, 101 or 152", 18, 152},
      {"norm_batch", 32, "samples that batch normalisation takes together; 0: all of a rank's batch", 0},
      {.key = "zero_last_norm",
       .value = true,
       .meaning = "the last norm of each block begins with weights of 0, so that the block is the identity"},
      {"classifier_deviation", 0.0, "initial weights of the last layer are normal with this deviation; 0: uniform", 0},
      kernels_option(kResNetOperations)};
  return config;
}

std::vector<ModelOption> picture_options() {
  return {{"data.size", 224, "width and height of the pictures that the model gets", 32, 4096},
          {.key = "data.augment", .value = true, .meaning = "random crops and flips of the training pictures"},
          {.key = "data.mixup",
           .value = 0.0,
           .meaning = "mix training pictures with weights of the distribution Beta(a, a); 0: do not",
           .low = 0,
           .high = 100},
          {.key = "data.cutmix",
           .value = 0.0,
           .meaning = "the same, by boxes that come from another picture; both: one or the other; 0: do not",
           .low = 0,
           .high = 100},
          {.key = "data.decode",
           .value = std::string("exact"),
           .meaning = "fast: JPEGs that shrink are decoded at 1/2, 1/4 or 1/8 of their size; faster for large photos",
           .choices = {"exact", "fast"}}};
}

models::ResNetOptions resnet_options(const Config& config, std::int64_t classes) {
  return {.depth = config.model["depth"],
          .classes = classes,
          .norm_batch = config.model["norm_batch"],
          .zero_last_norm = config.model.flag("zero_last_norm"),
          .classifier_deviation = config.model.real("classifier_deviation"),
          .kernels = kernels_of(config)};
}

}  // namespace reigen::train
