#include "reigen/parallel/strategy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>

#include "base/check.h"

namespace reigen::parallel {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << " of " << tensor.scalar_type();
  return text.str();
}

}  // namespace

void Strategy::require_state_fits(const std::map<std::string, at::Tensor>& given) const {
  const std::map<std::string, at::Tensor> own = state();
  for (const auto& [name, tensor] : own) {
    const auto entry = given.find(name);
    REIGEN_CHECK(entry != given.end(), "[strategy] the state of {} has no {}", description(), name);
    REIGEN_CHECK(entry->second.sizes() == tensor.sizes() && entry->second.scalar_type() == tensor.scalar_type(),
                 "[strategy] the state of {} does not fit: {}\n  got: {}   expected: {}", description(), name,
                 shape_of(entry->second), shape_of(tensor));
  }
  for (const auto& [name, tensor] : given) {
    REIGEN_CHECK(own.contains(name), "[strategy] {} has no {} to set", description(), name);
  }
}

void Strategy::load_state(const std::map<std::string, at::Tensor>& given) {
  require_state_fits(given);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state()) at::Tensor(tensor).copy_(given.at(name));
}

}  // namespace reigen::parallel
