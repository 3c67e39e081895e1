// The ranks of a group as a grid with named axes.
//
//   reigen::Mesh mesh(world, {{"dp_replicate", 2}, {"dp_shard", 4}});
//   mesh.along("dp_shard").all_gather(...);       // the 4 ranks with this rank's dp_replicate
//   mesh.along({"dp_replicate", "dp_shard"});     // all 8
//
// Axes go from outer to inner: rank = ((c0 · n1) + c1) · n2 + c2 ..., so ranks that differ in the last axis alone are
// neighbours, and on one machine where machines hold whole rows. Names in use: pp, dp_replicate, dp_shard, cp, tp,
// outer to inner; any other word does.
//
// A mesh is a handle: copies have the same groups, and the last one leaves them.
// Thread rule: as Communicator's; groups along different axes are independent.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::mesh {

inline constexpr int kRest = -1;

struct Axis {
  std::string name;
  int size = 1;  // kRest, for one axis at most: what the others leave
  bool operator==(const Axis&) const = default;
};

class Mesh {
 public:
  // Collective and blocking: every rank of `world` gives the same axes; one group is made for each of more than one
  // rank that is not all of `world`. Throws InvalidArgument on every rank where sizes do not multiply to world.size(),
  // names are empty or come twice, or ranks differ; errors of Communicator::split() else.
  Mesh(Communicator world, std::vector<Axis> axes);

  const std::vector<Axis>& axes() const;
  const Communicator& world() const;
  bool has(std::string_view axis) const;

  // Of an axis that the mesh does not have: 1 and 0, so that code for many axes runs on few.
  int size(std::string_view axis) const;
  int coordinate(std::string_view axis) const;

  // Where a rank of world() stands, one number an axis, and back. Throws InvalidArgument out of range.
  std::vector<int> coordinates_of(int rank) const;
  int rank_at(const std::vector<int>& coordinates) const;

  // The ranks that differ from this one along `axis` alone, in its order: rank() there is coordinate(axis). Local.
  // Throws InvalidArgument, naming the axes there are, for another.
  Communicator along(std::string_view axis) const;

  // The same along several axes, given from outer to inner, as one. Collective and blocking over world() the first
  // time, local after that.
  Communicator along(std::initializer_list<std::string_view> axes) const;
  Communicator along(const std::vector<std::string>& axes) const;

  // "dp_replicate 2 x dp_shard 4"
  std::string to_text() const;

 private:
  Communicator along_all(const std::vector<std::string_view>& axes) const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace reigen::mesh

namespace reigen {
using mesh::Mesh;
}  // namespace reigen
