// Turns a call of a hierarchical group into calls of smaller groups, which run one after the other: inside a machine,
// or between the machines (Level). There are M machines; a machine has L ranks. The data of the call has N bytes (in an
// all_gather: the block of each rank has N bytes). The first C ranks of every machine are called carriers. The data is
// cut into C slices, and each carrier exchanges one slice with the other machines. C is the number of ranks of the
// smallest machine, but 1 for calls of up to kOneCarrierBytes.
//
//   all_reduce      inside: reduce_scatter to the carriers; between: all_reduce of a slice; inside: all_gather. A
//                   machine sends and receives 2·N·(M-1)/M bytes, over C connections at once
//   broadcast       inside the root's machine: broadcast; between: broadcast of a slice; inside the other machines:
//                   all_gather. N bytes go from machine to machine
//   reduce          inside: reduce_scatter; between: reduce of a slice; inside the root's machine: gather
//   all_gather      inside: gather to the first rank; between: all_gather; inside: broadcast. A machine sends L·N
//                   bytes and receives the blocks of all other machines
//   reduce_scatter  inside: reduce to the first rank; between: reduce_scatter; inside: scatter
//   barrier         inside: barrier; between: barrier; inside: barrier
//   gather, scatter, all_to_all: barriers inside and between compare the calls; then the call runs among all ranks
//     over the network
//
// Sums are added in rank order inside a machine, and then over the machines in the order of the network's algorithm.
// So all ranks and all runs get the same bits. If the ranks are divided among machines in another way, the bits may
// differ.
#pragma once

#include <functional>
#include <vector>

#include "comm/call/call.h"
#include "comm/hierarchical/layout.h"

namespace reigen::comm::hierarchical {

// Which ranks make the call of a stage.
enum class Level {
  kHere,       // this rank alone
  kInside,     // the ranks of this machine, numbered by their places
  kBetween,    // the ranks that have the same place on their machines as this rank, numbered by their machines
  kEverybody,  // all ranks, over the network
};

struct Stage {
  Level level = Level::kHere;
  Call call = {};
  std::function<void()> work = {};  // the work of a stage at the level kHere
};

inline constexpr std::size_t kOneCarrierBytes = std::size_t{16} << 10;

// Returns memory for intermediate results. `area` is the number of the block of memory, below kScratchAreas. The memory
// stays valid until the plan has run.
using Scratch = std::function<std::byte*(int area, std::size_t bytes)>;
inline constexpr int kScratchAreas = 3;

// Makes the plan of a call. Every call of a stage, except at the level kEverybody, gets the tag `tag`, which contains a
// hash of the user's call. So if two ranks made different calls, they find a mismatch in the first stage that they run
// together.
std::vector<Stage> plan(const Call& call, const Layout& layout, const std::string& tag, const Scratch& scratch);

}  // namespace reigen::comm::hierarchical
