// The recipe of ResNet on ImageNet, as far as it is not its data: model options, and presets with the values of papers.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "reigen/models/resnet.h"
#include "reigen/train/config.h"

namespace reigen::train {

// What Reigen computes of a ResNet by its own operations (kernels_option.h).
inline constexpr const char* kResNetOperations = "norms with the addition and ReLU after them";

inline constexpr std::int64_t kImageNetSamples = 1'281'167;  // of ILSVRC 2012's training set
inline constexpr std::int64_t kImageNetClasses = 1000;

// goyal: Goyal et al., 2017, https://arxiv.org/abs/1706.02677. lars: LARS of You et al., 2017,
// https://arxiv.org/abs/1708.03888, with the rates of MLPerf's reference, for batches of 4096 to 32768.
std::vector<config::Preset> imagenet_presets();

// The options of the model (model.depth and others) with their defaults, the presets, and train.label_smoothing.
Config imagenet_defaults();

// The options of its pictures: data.size, data.augment, data.decode.
std::vector<ModelOption> picture_options();

models::ResNetOptions resnet_options(const Config& config, std::int64_t classes);

}  // namespace reigen::train
