#include "comm/schedule/table.h"

#include <algorithm>

#include "comm/schedule/algorithms.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::schedule {

namespace {

using Cuts = Algorithm::Cuts;

// All_reduces and reduces of up to this many bytes use `flat`, which sends more bytes but needs fewer steps.
constexpr std::size_t kSmall = std::size_t{16} << 10;
// Broadcasts of up to this many bytes use `tree`, because their time depends mostly on the number of steps.
constexpr std::size_t kSmallBroadcast = std::size_t{64} << 10;

}  // namespace

const std::vector<Algorithm>& algorithms(OperationKind kind) {
  using List = std::vector<Algorithm>;
  static const List kAllReduce = {{"direct", &direct_all_reduce, Cuts::kBlock},
                                  {"flat", &flat_all_reduce},
                                  {"ring", &ring_all_reduce, Cuts::kBlock},
                                  {"halving_doubling", &halving_doubling_all_reduce},
                                  {"recursive_doubling", &recursive_doubling_all_reduce}};
  static const List kReduceScatter = {{"direct", &direct_reduce_scatter, Cuts::kBlock},
                                      {"ring", &ring_reduce_scatter, Cuts::kBlock}};
  static const List kAllGather = {{"flat", &flat_all_gather}, {"ring", &ring_all_gather, Cuts::kBlock}};
  static const List kBroadcast = {
      {"tree", &tree_broadcast}, {"ring", &ring_broadcast, Cuts::kWhole}, {"flat", &flat_broadcast}};
  static const List kReduce = {
      {"direct", &direct_reduce, Cuts::kBlock}, {"flat", &flat_reduce}, {"tree", &tree_reduce}};
  static const List kGather = {{"flat", &flat_gather}};
  static const List kScatter = {{"flat", &flat_scatter}};
  static const List kAllToAll = {{"pairwise", &pairwise_all_to_all}};
  static const List kBarrier = {{"flat", &flat_barrier}, {"dissemination", &dissemination_barrier}};
  switch (even_kind(kind)) {
    case OperationKind::kAllReduce: return kAllReduce;
    case OperationKind::kReduceScatter: return kReduceScatter;
    case OperationKind::kAllGather: return kAllGather;
    case OperationKind::kBroadcast: return kBroadcast;
    case OperationKind::kReduce: return kReduce;
    case OperationKind::kGather: return kGather;
    case OperationKind::kScatter: return kScatter;
    case OperationKind::kAllToAll: return kAllToAll;
    default: break;
  }
  return kBarrier;
}

const Algorithm* find(OperationKind kind, const std::string& name) {
  const auto& all = algorithms(kind);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Algorithm& a) { return a.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const Algorithm& usual(OperationKind kind, std::size_t bytes, int ranks) {
  const bool sums = kind == OperationKind::kAllReduce || kind == OperationKind::kReduce;
  if (sums && bytes <= kSmall) return *find(kind, "flat");
  if (kind == OperationKind::kBroadcast && bytes > kSmallBroadcast && ranks > 2) return *find(kind, "ring");
  return algorithms(kind).front();
}

const std::vector<std::size_t>& switch_points() {
  static const std::vector<std::size_t> kPoints = {kSmall, kSmallBroadcast};
  return kPoints;
}

Problem problem_of(const Call& call, int rank, int size) {
  const auto parts = static_cast<std::size_t>(size);
  Problem problem{.rank = rank, .size = size, .root = call.root, .counts = {}};
  const bool whole = call.kind == OperationKind::kAllReduce || call.kind == OperationKind::kBroadcast ||
                     call.kind == OperationKind::kReduce;
  const bool uneven = is_uneven(call.kind);
  problem.counts = uneven  ? call.counts
                   : whole ? even_cut(call.count, parts)
                           : std::vector<std::size_t>(parts, call.count);
  if (even_kind(call.kind) == OperationKind::kAllToAll) problem.received = uneven ? call.arrives : problem.counts;
  return problem;
}

std::size_t segments_for(const Algorithm& algorithm, const Problem& problem, std::size_t element, std::size_t bytes) {
  if (algorithm.cuts == Cuts::kNothing) return 1;
  const Blocks blocks(problem.counts);
  const std::size_t cut = (algorithm.cuts == Cuts::kBlock ? blocks.largest() : blocks.total()) * element;
  return std::max<std::size_t>(1, (cut + bytes - 1) / bytes);
}

}  // namespace reigen::comm::schedule
