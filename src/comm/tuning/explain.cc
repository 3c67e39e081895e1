#include "comm/tuning/explain.h"

#include <algorithm>

#include "comm/shared_memory/ways.h"

namespace reigen::comm::tuning {

Taken taken(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, int ranks, bool cores_for_all) {
  const OperationKind even = even_kind(kind);
  if (choice.family() == Family::kTcp) {
    const auto* const rule = choice.find(even, bytes);
    return {choose_schedule(choice, even, bytes, ranks).name, rule == nullptr ? "" : rule->text};
  }
  shared_memory::Carrying carried;
  if (kind != OperationKind::kAllToAllV) {
    carried.possible = bytes <= shared_memory::largest_one_shot(even, ranks, cores_for_all);
    carried.usual = bytes <= shared_memory::usual_one_shot(even, ranks, cores_for_all);
  }
  const auto way = shared_memory::choose_way(choice, even, bytes, carried);
  const auto* const rule = choice.find(even, bytes, carried.possible ? UINT32_MAX : ~std::uint32_t{1});
  return {shared_memory::name_of(way), rule == nullptr ? "" : rule->text};
}

std::vector<Span> spans(const AlgorithmChoice& choice, OperationKind kind, int ranks, bool cores_for_all) {
  std::vector<std::size_t> begins = {0};
  const OperationKind even = even_kind(kind);
  for (const std::size_t carried : {shared_memory::usual_one_shot(even, ranks, cores_for_all),
                                    shared_memory::largest_one_shot(even, ranks, cores_for_all)}) {
    if (carried < SIZE_MAX) begins.push_back(carried + 1);
  }
  for (const std::size_t point : schedule::switch_points()) begins.push_back(point + 1);
  for (const auto& rule : choice.rules(kind)) {
    begins.push_back(rule.least);
    if (rule.most < SIZE_MAX) begins.push_back(rule.most + 1);
  }
  std::sort(begins.begin(), begins.end());
  std::vector<Span> all;
  for (const std::size_t from : begins) {
    const Taken now = taken(choice, kind, from, ranks, cores_for_all);
    if (!all.empty() && all.back().taken == now) continue;
    if (!all.empty()) all.back().to = from - 1;
    all.push_back({now, from});
  }
  return all;
}

}  // namespace reigen::comm::tuning
