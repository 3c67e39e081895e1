// Rules for combinations of options, and options that are lists written as text.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/config/config.h"
#include "reigen/device/device.h"

namespace reigen::config {

// Throws InvalidArgument with exit code 78 for options that exclude each other, for an option that needs another one,
// for an option that the chosen optimizer, schedule or strategy does not have, and for a list that cannot be parsed.
void require_consistent(const Config& config);
// Makes the same checks for the section optim and the options that depend on it, and for no others.
void require_optimization(const Config& config);

// Splits "a, b" into its items, without the spaces around them. Throws InvalidArgument naming the key if an item is
// empty.
std::vector<std::string> items_of(const std::string& key, const std::string& list);

// Parses optim.lr_factors: "head.*=10, body.*=0.1". Throws InvalidArgument.
std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config);

// The value of train.device; nullopt: auto. Throws InvalidArgument.
std::optional<Device> device_of(const TrainConfig& config);

// Whether each rank can average its share of the gradients in its step. False if an option is set that needs an
// exchange of gradients in buckets.
bool lets_gradients_stay(const ParallelConfig& config);

// Whether the weights of the ranks differ between steps under this strategy.
bool acts_on_weights(const parallel::AnyStrategy& strategy);

}  // namespace reigen::config
