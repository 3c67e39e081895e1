// One algorithm for all operations that have it. Thread rule: pure.
#pragma once

#include <string>

#include "comm/call/call.h"

namespace reigen::trial {

// Whether `kind` has an algorithm of this name in any family. A kind with blocks of different sizes has the algorithms
// of its counterpart with equal blocks.
bool has_algorithm(comm::OperationKind kind, const std::string& name);

// "all_reduce:two_shot,reduce:two_shot,...": for GroupOptions::algorithms. Empty for an empty name.
std::string rules_of(const std::string& name);

}  // namespace reigen::trial
