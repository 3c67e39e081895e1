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

// The mesh along whose axes ranks divide the model itself; null if they do not.
const mesh::Mesh* mesh_of_model(const DataParallelOptions& options) {
  if (options.tensor_parallel) return &options.tensor_parallel.mesh();
  return options.pipeline ? &options.pipeline.mesh() : nullptr;
}

DataRanks of_divided_model(const DataParallelOptions& options, const Communicator& world, const mesh::Mesh& mesh) {
  REIGEN_CHECK(
      mesh.world().size() == world.size(),
      "[data_parallel] the mesh of the divided model does not have the ranks of the group\n  got: {}, a group of "
      "{}   expected: the group that the mesh was made of",
      mesh.to_text(), world.size());
  REIGEN_CHECK(
      !options.mesh,
      "[data_parallel] two meshes are given\n  got: mesh, and tensor_parallel or pipeline   fix: leave mesh out, "
      "the others have one");
  REIGEN_CHECK(
      !options.tensor_parallel || !options.pipeline || options.pipeline.mesh().axes() == mesh.axes(),
      "[data_parallel] tensor_parallel and pipeline have different meshes\n  got: {} and {}   expected: one mesh",
      mesh.to_text(), options.pipeline.mesh().to_text());
  const std::string of_tensors = options.tensor_parallel ? options.tensor_parallel.axis() : "";
  const std::string of_stages = options.pipeline ? options.pipeline.axis() : "";
  std::vector<std::string> axes;
  for (const mesh::Axis& axis : mesh.axes()) {
    if (axis.name == "dp_replicate" || axis.name == "dp_shard") {
      axes.push_back(axis.name);
    } else if (axis.size > 1 && axis.name != of_tensors && axis.name != of_stages) {
      throw InvalidArgument(
          Report{.what = fmt::format("[data_parallel] the mesh has the axis {}, which nobody uses", axis.name),
                 .got = mesh.to_text(),
                 .expected = "dp_replicate, dp_shard, and the axes of tensor_parallel and pipeline",
                 .fix = "name the axis of data parallelism dp_shard or dp_replicate"});
    }
  }
  DataRanks ranks = along_axes(mesh, mesh.along(axes));
  ranks.groups.all = world;
  if (options.tensor_parallel) ranks.groups.box_owners = options.tensor_parallel.region().group;
  if (options.pipeline) ranks.groups.stages = options.pipeline.ranks();
  if (options.shard == Shard::kNone) ranks.groups.sharers = ranks.groups.world;
  return ranks;
}

}  // namespace

DataRanks data_ranks(const DataParallelOptions& options, const Communicator& world) {
  if (const mesh::Mesh* mesh = mesh_of_model(options)) return of_divided_model(options, world, *mesh);
  if (mesh_fits(options, world)) return along_axes(*options.mesh, world);
  DataRanks ranks;
  ranks.groups.all = ranks.groups.world = ranks.groups.sharers = world;
  ranks.axes = {{options.shard == Shard::kNone ? "dp_replicate" : "dp_shard", world.size()}};
  ranks.here = {world.rank()};
  return ranks;
}

}  // namespace reigen::parallel
