#include "comm/shared_memory/ways.h"

#include <algorithm>

namespace reigen::comm::shared_memory {

namespace {

// inline_bytes_for() returns one of these two values.
constexpr std::size_t kFewBytes = 2048;
constexpr std::size_t kManyBytes = 16384;
// The most ranks with which inputs of kManyBytes may be stored next to calls. More ranks would need too much memory.
constexpr int kMostWithMany = 16;
// The bytes that all ranks together add, on shared cores, in the time of a meeting (all ranks wait for each other).
constexpr std::size_t kAddedByAll = std::size_t{256} << 10;

// The largest input with which a call uses one_shot when no rule says otherwise. In a one_shot all_reduce every rank
// adds all inputs. If ranks share cores, a rank takes the time for its additions from the other ranks. So the limit
// falls with the number of ranks.
std::size_t usually_carried(OperationKind kind, int ranks, std::size_t inline_bytes) {
  if (kind != OperationKind::kAllReduce) return inline_bytes;
  const auto p = static_cast<std::size_t>(ranks);
  return std::clamp(kAddedByAll / (p * p), std::min(kFewBytes, inline_bytes), inline_bytes);
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

std::size_t inline_bytes_for(int ranks, bool cores_for_all) {
  return cores_for_all || ranks > kMostWithMany ? kFewBytes : kManyBytes;
}

std::size_t largest_one_shot(OperationKind kind, int ranks, bool cores_for_all) {
  if (kind == OperationKind::kBarrier) return SIZE_MAX;
  return inline_bytes_for(ranks, cores_for_all) * inputs_in_whole(kind, ranks);
}

std::size_t usual_one_shot(OperationKind kind, int ranks, bool cores_for_all) {
  if (kind == OperationKind::kBarrier) return SIZE_MAX;
  return usually_carried(kind, ranks, inline_bytes_for(ranks, cores_for_all)) * inputs_in_whole(kind, ranks);
}

Carrying carrying(OperationKind kind, std::size_t largest, int ranks, std::size_t inline_bytes) {
  return {.possible = largest <= inline_bytes, .usual = largest <= usually_carried(kind, ranks, inline_bytes)};
}

Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, Carrying carried) {
  constexpr std::uint32_t kNotCarried = ~(std::uint32_t{1} << static_cast<unsigned>(Way::kOneShot));
  if (const auto* rule = choice.find(kind, bytes, carried.possible ? UINT32_MAX : kNotCarried)) {
    return static_cast<Way>(rule->place);
  }
  return choose_usual_way(carried);
}

}  // namespace reigen::comm::shared_memory
