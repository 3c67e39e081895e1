#include "parallel/data_ranks.h"

#include <fmt/format.h>

#include <string>

#include "base/check.h"
#include "parallel/check/option_checks.h"
#include "reigen/base/error.h"

namespace reigen::parallel {
namespace {

DataRanks along_axes(const mesh::Mesh& mesh, const Communicator& all) {
  DataRanks ranks;
  ranks.groups.all = ranks.groups.world = all;
  ranks.groups.sharers = mesh.has("dp_shard") ? mesh.along("dp_shard") : Communicator();
  if (mesh.has("dp_replicate")) ranks.groups.replicas = mesh.along("dp_replicate");
  for (const mesh::Axis& axis : mesh.axes()) ranks.axes.push_back({axis.name, axis.size});
  ranks.here = mesh.coordinates_of(mesh.world().rank());
  return ranks;
}

}  // namespace

DataRanks data_ranks(const DataParallelOptions& options, const Communicator& world) {
  if (options.tensor_parallel) {
    const mesh::Mesh& mesh = options.tensor_parallel.mesh();
    REIGEN_CHECK(
        mesh.world().size() == world.size(),
        "[data_parallel] the mesh of tensor_parallel does not have the ranks of the group\n  got: {}, a group of "
        "{}   expected: the group that the mesh was made of",
        mesh.to_text(), world.size());
    REIGEN_CHECK(!options.mesh,
                 "[data_parallel] two meshes are given\n  got: mesh and tensor_parallel   fix: leave mesh "
                 "out, tensor_parallel has one");
    std::vector<std::string> axes;
    for (const mesh::Axis& axis : mesh.axes()) {
      if (axis.name == "dp_replicate" || axis.name == "dp_shard") {
        axes.push_back(axis.name);
      } else if (axis.size > 1 && axis.name != options.tensor_parallel.axis()) {
        throw InvalidArgument(
            Report{.what = fmt::format("[data_parallel] the mesh has the axis {}, which nobody uses", axis.name),
                   .got = mesh.to_text(),
                   .expected = fmt::format("dp_replicate, dp_shard and {}", options.tensor_parallel.axis()),
                   .fix = "name the axis of data parallelism dp_shard or dp_replicate"});
      }
    }
    DataRanks ranks = along_axes(mesh, mesh.along(axes));
    ranks.groups.all = world;
    ranks.groups.box_owners = options.tensor_parallel.region().group;
    if (options.shard == Shard::kNone) ranks.groups.sharers = ranks.groups.world;
    return ranks;
  }
  if (mesh_fits(options, world)) return along_axes(*options.mesh, world);
  DataRanks ranks;
  ranks.groups.all = ranks.groups.world = ranks.groups.sharers = world;
  ranks.axes = {{options.shard == Shard::kNone ? "dp_replicate" : "dp_shard", world.size()}};
  ranks.here = {world.rank()};
  return ranks;
}

}  // namespace reigen::parallel
