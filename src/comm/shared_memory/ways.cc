#include "comm/shared_memory/ways.h"

#include "comm/shared_memory/page.h"

namespace reigen::comm::shared_memory {

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
  const bool gives_one_block = kind == OperationKind::kAllGather || kind == OperationKind::kGather;
  return gives_one_block ? kInlineBytes * static_cast<std::size_t>(ranks) : kInlineBytes;
}

Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, bool carried) {
  constexpr std::uint32_t kNotCarried = ~(std::uint32_t{1} << static_cast<unsigned>(Way::kOneShot));
  if (const auto* rule = choice.find(kind, bytes, carried ? UINT32_MAX : kNotCarried)) {
    return static_cast<Way>(rule->place);
  }
  return choose_usual_way(carried);
}

}  // namespace reigen::comm::shared_memory
