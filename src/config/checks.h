// Rules for combinations of options, and options that are lists written as text.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/config/config.h"
#include "reigen/device/device.h"

namespace reigen::config {

// Throws InvalidArgument with exit code 78 for options that exclude each other, for an option that needs a second one,
// for an option that the chosen optimizer, schedule or strategy does not have, and for a list that cannot be parsed.
void require_consistent(const Config& config);
// Makes those checks of require_consistent() that concern the section optim, or options that depend on this section.
void require_optimization(const Config& config);

// Throws InvalidArgument with exit code 78 if the name of a recipe's own option cannot be a flag, or if another option
// has this name.
void require_own_options(const ModelConfig& own);

// Splits "a, b" into its items, without the spaces around them. Throws InvalidArgument naming the key if an item is
// empty.
std::vector<std::string> items_of(const std::string& key, const std::string& list);

// Parses optim.lr_factors, for example "head.*=10, body.*=0.1". Throws InvalidArgument if an item is not a name with a
// factor of at least 0.
std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config);

// Returns the device that train.device names, or nullopt for "auto". Throws InvalidArgument for any other text.
std::optional<Device> device_of(const TrainConfig& config);

// Whether all gradients can stay where backward writes them until the optimizer's step, in which each rank averages its
// share. False if an option is set that needs an exchange of gradients in buckets.
bool lets_gradients_stay(const ParallelConfig& config);

// The memory that a rank keeps for the strategy between steps, as a multiple of the memory of all trainable weights.
int copies_held(const parallel::AnyStrategy& strategy);

// Whether the weights of the ranks differ between steps under this strategy.
bool acts_on_weights(const parallel::AnyStrategy& strategy);

}  // namespace reigen::config
