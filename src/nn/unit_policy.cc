#include "reigen/nn/unit_policy.h"

#include <torch/nn/module.h>

#include <numeric>
#include <set>

#include "base/check.h"

namespace reigen::nn {

std::vector<Unit> units_of_size(const std::vector<Unit>& units, std::int64_t elements) {
  REIGEN_CHECK(elements >= 1, "[units_of_size] a unit needs a size\n  got: {}   expected: 1 element or more", elements);
  std::set<const at::TensorImpl*> taken;
  const auto left = [&taken](const Unit& unit) {
    std::int64_t sum = 0;
    for (const at::Tensor& parameter : unit.parameters()) {
      if (!taken.contains(parameter.unsafeGetTensorImpl())) sum += parameter.numel();
    }
    return sum;
  };
  std::vector<std::int64_t> sizes;
  for (const Unit& unit : units) sizes.push_back(left(unit));
  std::vector<std::size_t> smallest_first(units.size());
  std::iota(smallest_first.begin(), smallest_first.end(), std::size_t{0});
  std::stable_sort(smallest_first.begin(), smallest_first.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] < sizes[b]; });
  std::vector<char> is_chosen(units.size(), 0);
  for (const std::size_t i : smallest_first) {
    if (left(units[i]) < elements) continue;
    is_chosen[i] = 1;
    for (const at::Tensor& parameter : units[i].parameters()) taken.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<Unit> chosen;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (is_chosen[i] != 0) chosen.push_back(units[i]);
  }
  return chosen;
}

}  // namespace reigen::nn
