#include "reigen/layout/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace reigen::layout {
namespace {

std::string to_text(const Along& along) {
  switch (along.kind) {
    case AlongKind::kReplicate: return "replicate";
    case AlongKind::kShard: return fmt::format("shard({})", along.dimension);
    case AlongKind::kFlat: return "flat";
    case AlongKind::kPartial: return "partial";
    case AlongKind::kStage: return "stage";
  }
  return "unknown";
}

const char* to_text(Medium medium) {
  switch (medium) {
    case Medium::kHost: return "memory";
    case Medium::kDevice: return "device memory";
    case Medium::kDisk: return "disk";
    case Medium::kPinned: return "pinned memory of the host";
  }
  return "unknown";
}

}  // namespace

bool Placement::has(AlongKind kind) const {
  return std::any_of(along.begin(), along.end(), [&](const Along& one) { return one.kind == kind; });
}

std::string to_text(const Placement& placement) {
  std::vector<std::string> axes;
  for (const Along& along : placement.along) axes.push_back(to_text(along));
  std::string text = axes.empty() ? "alone" : fmt::format("{}", fmt::join(axes, " x "));
  text += fmt::format(", {}{}", placement.residence.is_common ? "common " : "", to_text(placement.residence.medium));
  if (!placement.has(AlongKind::kFlat)) return text;
  switch (placement.whole) {
    case Whole::kAlways: return text + ", whole always";
    case Whole::kWhileUnitRuns: return text + ", whole while its unit runs";
    case Whole::kNever: break;
  }
  return text;
}

}  // namespace reigen::layout
