// What the section parallel means: which strategy has which option.
#pragma once

#include <string>
#include <vector>

#include "reigen/train/config.h"

namespace reigen::train {

// Throws InvalidArgument (78) for an option that the chosen strategy does not have, naming those that have it.
void require_known_strategy(const Config& config);

// Whether nothing is set for gradients that travel: strategy, buckets, overlap.
bool lets_gradients_stay(const ParallelConfig& config);

// Those of parallel.strategy.
std::vector<std::string> strategy_names();

// Whether the strategy of that name brings weights together (parallel::WeightStrategy).
bool acts_on_weights(const std::string& strategy);

}  // namespace reigen::train
