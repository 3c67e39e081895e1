#include "trial/algorithms.h"

#include <algorithm>

#include "comm/call/algorithm_choice.h"

namespace reigen::trial {

bool has_algorithm(comm::OperationKind kind, const std::string& name) {
  if (comm::is_between_two(kind)) return false;
  for (const auto family : {comm::Family::kTcp, comm::Family::kSharedMemory}) {
    const auto names = comm::algorithm_names(family, comm::even_kind(kind));
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  }
  return false;
}

std::string rules_of(const std::string& name) {
  std::string rules;
  for (const auto kind : comm::kRuledKinds) {
    if (has_algorithm(kind, name)) rules += (rules.empty() ? "" : ",") + std::string(comm::name_of(kind)) + ":" + name;
  }
  return rules;
}

}  // namespace reigen::trial
