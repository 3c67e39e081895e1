// A call of a hierarchical group as calls of smaller groups, one after the other. L ranks a machine, M machines, N
// bytes; the first C ranks of every machine carry a slice each, C the least L (one up to kOneCarrierBytes).
//
//   all_reduce      inside: reduce_scatter to the carriers; between: all_reduce of a slice; inside: all_gather.
//                   A machine sends and receives 2·N·(M-1)/M bytes, over C connections at once
//   broadcast       root's machine: broadcast; between: broadcast of a slice; elsewhere inside: all_gather. N bytes
//   reduce          inside: reduce_scatter; between: reduce of a slice; root's machine: gather
//   all_gather      inside: gather to the first rank; between: all_gather; inside: broadcast. L·N out, all others' in
//   reduce_scatter  inside: reduce to the first rank; between: reduce_scatter; inside: scatter
//   barrier         inside, between, inside
//   gather, scatter, all_to_all: a comparison of the calls, then among all ranks over the network
//
// Sums run in rank order inside a machine, then in the order that the network's algorithm adds the machines: the same
// bits on all ranks and in every run, not those of another layout.
#pragma once

#include <functional>
#include <vector>

#include "comm/call/call.h"
#include "comm/hierarchical/layout.h"

namespace reigen::comm::hierarchical {

// Who a stage is a call of.
enum class Level {
  kHere,       // this rank alone
  kInside,     // the ranks of this machine, by their places
  kBetween,    // the ranks of this place, by their machines
  kEverybody,  // all ranks, over the network
};

struct Stage {
  Level level = Level::kHere;
  Call call = {};
  std::function<void()> work = {};  // kHere
};

inline constexpr std::size_t kOneCarrierBytes = std::size_t{16} << 10;

// Memory for what is under way, by the number of the area: it lasts until the plan has run.
using Scratch = std::function<std::byte*(int area, std::size_t bytes)>;
inline constexpr int kScratchAreas = 3;

// `tag` is put on every call but those of kEverybody, so that ranks that made different calls do not meet in them.
std::vector<Stage> plan(const Call& call, const Layout& layout, const std::string& tag, const Scratch& scratch);

}  // namespace reigen::comm::hierarchical
