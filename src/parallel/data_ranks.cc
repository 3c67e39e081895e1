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
  if (options.pipeline) return &options.pipeline.mesh();
  return options.context_parallel ? &options.context_parallel.mesh() : nullptr;
}

DataRanks of_divided_model(const DataParallelOptions& options, const Communicator& world, const mesh::Mesh& mesh) {
  REIGEN_CHECK(
      mesh.world().size() == world.size(),
      "[data_parallel] the mesh of the divided model does not have the ranks of the group\n  got: {}, a group of "
      "{}   expected: the group that the mesh was made of",
      mesh.to_text(), world.size());
  REIGEN_CHECK(
      !options.mesh,
      "[data_parallel] two meshes are given\n  got: mesh, and tensor_parallel, pipeline or context_parallel   fix: "
      "leave mesh out, the others have one");
  const auto require_same = [&](const mesh::Mesh& other) {
    REIGEN_CHECK(
        other.axes() == mesh.axes(),
        "[data_parallel] tensor_parallel, pipeline and context_parallel have different meshes\n  got: {} and {}   "
        "expected: one mesh",
        mesh.to_text(), other.to_text());
  };
  if (options.pipeline) require_same(options.pipeline.mesh());
  if (options.context_parallel) require_same(options.context_parallel.mesh());
  const std::string of_tensors = options.tensor_parallel ? options.tensor_parallel.axis() : "";
  const std::string of_stages = options.pipeline ? options.pipeline.axis() : "";
  const std::string of_sequences = options.context_parallel ? options.context_parallel.axis() : "";
  std::vector<std::string> axes, replicas;  // `replicas`: the axes along which ranks hold the same shares
  for (const mesh::Axis& axis : mesh.axes()) {
    const bool holds_the_same = axis.name == "dp_replicate" || axis.name == of_sequences;
    if (holds_the_same) replicas.push_back(axis.name);
    if (holds_the_same || axis.name == "dp_shard") {
      axes.push_back(axis.name);
    } else if (axis.size > 1 && axis.name != of_tensors && axis.name != of_stages) {
      throw InvalidArgument(
          Report{.what = fmt::format("[data_parallel] the mesh has the axis {}, which nobody uses", axis.name),
                 .got = mesh.to_text(),
                 .expected = "dp_replicate, dp_shard, and the axes of tensor_parallel, pipeline and context_parallel",
                 .fix = "name the axis of data parallelism dp_shard or dp_replicate"});
    }
  }
  DataRanks ranks = along_axes(mesh, mesh.along(axes));
  // The layout knows the axes by these names.
  for (layout::Axis& axis : ranks.axes) {
    if (!of_stages.empty() && axis.name == of_stages) axis.name = "pp";
    if (!of_sequences.empty() && axis.name == of_sequences) axis.name = "cp";
  }
  ranks.groups.all = world;
  ranks.groups.replicas = mesh.along(replicas);
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
