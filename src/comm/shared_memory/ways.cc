#include "comm/shared_memory/ways.h"

#include <algorithm>

#include "comm/shared_memory/page.h"

namespace reigen::comm::shared_memory {

namespace {

constexpr std::size_t kAlwaysCarried = 2048;                 // bytes of an input
constexpr std::size_t kAddedByAll = std::size_t{256} << 10;  // bytes that cost ranks on the same cores a meeting

// Where ranks share cores a meeting is a round of context switches, so it is worth copies to save one; in an all_reduce
// every rank adds all inputs, on the cores of the others.
std::size_t usually_carried(OperationKind kind, int ranks, bool cores_for_all) {
  if (cores_for_all) return kAlwaysCarried;
  if (kind != OperationKind::kAllReduce) return kInlineBytes;
  const auto p = static_cast<std::size_t>(ranks);
  return std::clamp(kAddedByAll / (p * p), kAlwaysCarried, kInlineBytes);
}

std::size_t inputs_in_whole(OperationKind kind, int ranks) {
  const bool gives_one_block = kind == OperationKind::kAllGather || kind == OperationKind::kGather;
  return gives_one_block ? static_cast<std::size_t>(ranks) : 1;
}

}  // namespace

const char* name_of(Way way) {
  switch (way) {
    case Way::kOneShot: return "one_shot";
    case Way::kFused: return "fused";
    case Way::kTwoShot: break;
  }
  return "two_shot";
}

std::vector<std::string> way_names(OperationKind kind) {
  if (kind == OperationKind::kBarrier) return {name_of(Way::kOneShot)};
  return {name_of(Way::kOneShot), name_of(Way::kFused), name_of(Way::kTwoShot)};
}

std::size_t largest_one_shot(OperationKind kind, int ranks) {
  if (kind == OperationKind::kBarrier) return SIZE_MAX;
  return kInlineBytes * inputs_in_whole(kind, ranks);
}

std::size_t usual_one_shot(OperationKind kind, int ranks, bool cores_for_all) {
  if (kind == OperationKind::kBarrier) return SIZE_MAX;
  return usually_carried(kind, ranks, cores_for_all) * inputs_in_whole(kind, ranks);
}

Carrying carrying(OperationKind kind, std::size_t largest, int ranks, bool cores_for_all) {
  return {.possible = largest <= kInlineBytes, .usual = largest <= usually_carried(kind, ranks, cores_for_all)};
}

Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, Carrying carried) {
  constexpr std::uint32_t kNotCarried = ~(std::uint32_t{1} << static_cast<unsigned>(Way::kOneShot));
  if (const auto* rule = choice.find(kind, bytes, carried.possible ? UINT32_MAX : kNotCarried)) {
    return static_cast<Way>(rule->place);
  }
  return choose_usual_way(carried);
}

}  // namespace reigen::comm::shared_memory
