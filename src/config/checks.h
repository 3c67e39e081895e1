// What options mean together, and lists that are written as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reigen/config/config.h"

namespace reigen::config {

// Throws InvalidArgument (78) for options that do not go together, for one that another one needs, for one that the
// chosen optimizer, schedule or strategy does not have, and for a list that cannot be read.
void require_consistent(const Config& config);

// "a, b" as its items, without the spaces around them. Throws InvalidArgument naming the key where one is empty.
std::vector<std::string> items_of(const std::string& key, const std::string& list);

// "head.*=10, body.*=0.1"
std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config);

// Whether each rank's share of the gradients can be averaged in its step: nothing is set that lets them travel.
bool lets_gradients_stay(const ParallelConfig& config);

// Whether ranks' weights differ between steps under the chosen strategy.
bool acts_on_weights(const parallel::AnyStrategy& strategy);

}  // namespace reigen::config
