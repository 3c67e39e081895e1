// Arranges the ranks of a group in a grid with named axes.
//
//   reigen::Mesh mesh(world, {{"dp_replicate", 2}, {"dp_shard", 4}});
//   mesh.along("dp_shard").all_gather(...);       // the 4 ranks with this rank's dp_replicate
//   mesh.along({"dp_replicate", "dp_shard"});     // all 8
//
// Axes go from outer to inner: rank = ((c0 · n1) + c1) · n2 + c2 ..., where c is the coordinate on an axis and n the
// size of the axis. So ranks that differ only in the last axis have consecutive numbers. These ranks are on one machine
// if each machine holds whole rows of the grid. Usual names, outer to inner: pp (pipeline stages), dp_replicate and
// dp_shard (data parallelism), cp (context), tp (tensor parallelism). Any other name may be used.
//
// A mesh is a handle: copies share the same groups. When a rank destroys its last copy, it leaves the groups.
// Thread rule: a rank makes the calls of one group one after the other, as for every Communicator. Groups along
// different axes may be used at the same time.
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
  int size = 1;  // kRest, for one axis at most, stands for the number of ranks divided by the other sizes
  bool operator==(const Axis&) const = default;
};

class Mesh {
 public:
  // Collective and blocking: every rank of `world` passes the same axes. Creates a group for each axis, unless the
  // axis has size 1 or spans all of `world`. Throws InvalidArgument on every rank if the sizes do not multiply to
  // world.size(), if names are empty or occur twice, or if ranks pass different axes. The error names sizes that would
  // fit. Also throws the errors of Communicator::split().
  Mesh(Communicator world, std::vector<Axis> axes);

  const std::vector<Axis>& axes() const;
  const Communicator& world() const;
  bool has(std::string_view axis) const;

  // For an axis that the mesh does not have, size() is 1 and coordinate() is 0, so that code for a mesh with many axes
  // also works with a mesh that has fewer axes.
  int size(std::string_view axis) const;
  int coordinate(std::string_view axis) const;

  // coordinates_of() returns the coordinates of a rank of world(), one for each axis. rank_at() returns the rank at
  // these coordinates. Both throw InvalidArgument for values out of range.
  std::vector<int> coordinates_of(int rank) const;
  int rank_at(const std::vector<int>& coordinates) const;

  // The group of the ranks that differ from this rank only along `axis`, in the order of the axis. In this group rank()
  // is coordinate(axis). The call does not communicate. Throws InvalidArgument for an unknown axis, naming the axes of
  // the mesh.
  Communicator along(std::string_view axis) const;

  // The group along several axes, given from outer to inner. The first call for these axes is collective and blocking
  // over world(); later calls do not communicate.
  Communicator along(std::initializer_list<std::string_view> axes) const;
  Communicator along(const std::vector<std::string>& axes) const;

  // "dp_replicate 2 x dp_shard 4"
  std::string to_text() const;

  // A line for each rank: its number, its host, and its coordinate on each axis. Collective and blocking over world().
  std::string table() const;

 private:
  Communicator along_all(const std::vector<std::string_view>& axes) const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace reigen::mesh

namespace reigen {
using mesh::Mesh;
}  // namespace reigen
