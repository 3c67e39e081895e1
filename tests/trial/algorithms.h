// One algorithm for all operations that have it. Thread rule: pure.
#pragma once

#include <string>

#include "comm/call/call.h"

namespace reigen::trial {

// Whether `kind`, or its namesake with blocks of one size, has an algorithm of this name in any family.
bool has_algorithm(comm::OperationKind kind, const std::string& name);

// "all_reduce:two_shot,reduce:two_shot,...": for GroupOptions::algorithms. Empty for an empty name.
std::string rules_of(const std::string& name);

}  // namespace reigen::trial
