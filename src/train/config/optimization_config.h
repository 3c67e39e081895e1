// What the section optim (and train.clip_*) means: which optimizer has which option, lists of patterns, the schedule.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reigen/optim/schedule.h"
#include "reigen/train/config.h"

namespace reigen::train {

// Throws InvalidArgument (78) for an option that the chosen optimizer or schedule does not have, naming those that have
// it; for one that is missing; and for a list that cannot be read.
void require_known_optimization(const Config& config);

// "a, b" as its items, without the spaces around them. Throws InvalidArgument naming the key where one is empty.
std::vector<std::string> items_of(const std::string& key, const std::string& list);

// "head.*=10, body.*=0.1"
std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config);

optim::ScheduleOptions schedule_of(const OptimConfig& config, std::int64_t total_steps);

// optim.lr for the batch that is trained with.
double base_lr(const OptimConfig& config, double lr, std::int64_t global_batch);

}  // namespace reigen::train
