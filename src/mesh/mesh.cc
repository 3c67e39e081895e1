#include "reigen/mesh/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/machine/host_name.h"
#include "comm/agree.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"

namespace reigen::mesh {
namespace {

std::string text_of(const std::vector<Axis>& axes) {
  std::vector<std::string> parts;
  for (const Axis& axis : axes) {
    parts.push_back(axis.size == kRest ? fmt::format("{} rest", axis.name)
                                       : fmt::format("{} {}", axis.name, axis.size));
  }
  return axes.empty() ? "no axes" : fmt::format("{}", fmt::join(parts, " x "));
}

// Replaces the size kRest of an axis by the size that makes the product of all sizes equal to `ranks`. Returns a text
// that says what is wrong with the axes, or an empty text if nothing is wrong.
std::string resolve(std::vector<Axis>& axes, int ranks) {
  std::int64_t product = 1;
  Axis* rest = nullptr;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& axis = axes[i];
    if (axis.name.empty()) return fmt::format("axis {} has no name", i);
    const auto is_same = [&](const Axis& other) { return other.name == axis.name; };
    if (std::any_of(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), is_same)) {
      return fmt::format("axis {} comes twice", axis.name);
    }
    if (axis.size == kRest) {
      if (rest != nullptr) return fmt::format("axes {} and {} both take the rest", rest->name, axis.name);
      rest = &axis;
      continue;
    }
    if (axis.size < 1) return fmt::format("axis {} has size {}", axis.name, axis.size);
    if (product <= ranks) product *= axis.size;
  }
  if (rest != nullptr && ranks % product == 0) {
    rest->size = static_cast<int>(ranks / product);
    return {};
  }
  if (product == ranks && rest == nullptr) return {};
  return fmt::format("{} for {} ranks", text_of(axes), ranks);
}

// Meshes of these axes that would have as many ranks: with another size of one axis, or else the sizes that may occur.
std::string that_would_fit(const std::vector<Axis>& axes, int ranks) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::int64_t others = 1;
    for (std::size_t j = 0; j < axes.size(); ++j) {
      if (j != i && axes[j].size > 0 && others <= ranks) others *= axes[j].size;
    }
    if (ranks % others != 0) continue;
    std::vector<Axis> one = axes;
    one[i].size = static_cast<int>(ranks / others);
    found.push_back(text_of(one));
  }
  if (!found.empty()) return fmt::format("{}", fmt::join(found, "; or "));
  std::vector<int> divisors;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) divisors.push_back(size);
  }
  return fmt::format("sizes among {} whose product is {}", fmt::join(divisors, ", "), ranks);
}

void require_the_same(const std::vector<Axis>& axes, const Communicator& world) {
  const auto difference = comm::find_difference({text_of(axes)}, world, "axes of a mesh");
  if (!difference) return;
  throw InvalidArgument(Report{.what = "[mesh] ranks give different axes",
                               .got = fmt::format("rank {}: {}", difference->rank, difference->other),
                               .expected = fmt::format("rank 0: {}", difference->first),
                               .fix = "make the mesh with the same axes on every rank"});
}

}  // namespace

struct Mesh::State {
  Communicator world;
  std::vector<Axis> axes;
  std::vector<int> here = {};  // coordinates of this rank in the grid, one for each axis
  // The groups that this rank has formed so far. A key has the indices of the axes along which the ranks of its group
  // differ, from the outer axis to the inner axis.
  std::map<std::vector<std::size_t>, Communicator> groups = {};

  std::optional<std::size_t> find(std::string_view name) const {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].name == name) return i;
    }
    return std::nullopt;
  }

  std::size_t place_of(std::string_view name) const {
    if (const auto place = find(name)) return *place;
    throw InvalidArgument(Report{.what = fmt::format("[mesh] there is no axis {}", name),
                                 .got = fmt::format("a mesh of {}", text_of(axes)),
                                 .expected = "one of its axes",
                                 .fix = "name the axis when the mesh is made; one of size 1 costs nothing"});
  }

  // Returns the group whose ranks differ from this rank only along the axes `places`. Along all other axes these ranks
  // have the same coordinates. The color for split() is one number that is made of these equal coordinates.
  Communicator group(const std::vector<std::size_t>& places) {
    if (const auto found = groups.find(places); found != groups.end()) return found->second;
    int size = 1;
    int color = 0;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const bool inside = std::find(places.begin(), places.end(), i) != places.end();
      if (inside) size *= axes[i].size;
      if (!inside) color = color * axes[i].size + here[i];
    }
    if (size == 1) return groups.emplace(places, Communicator()).first->second;
    if (size == world.size()) return groups.emplace(places, world).first->second;
    return groups.emplace(places, *world.split(color, world.rank())).first->second;
  }
};

Mesh::Mesh(Communicator world, std::vector<Axis> axes) {
  require_the_same(axes, world);
  const std::string wrong = resolve(axes, world.size());
  if (!wrong.empty()) {
    throw InvalidArgument(
        Report{.what = "[mesh] these axes make no grid of the ranks",
               .got = wrong,
               .expected = fmt::format("different names, and sizes whose product is {}", world.size()),
               .fix = wrong.starts_with("ax")  // an axis is wrong in itself
                          ? "give axes different names, sizes of 1 or more, and kRest to one of them at most"
                          : fmt::format("take {}; or start as many ranks as the product of the sizes",
                                        that_would_fit(axes, world.size()))});
  }
  state_ = std::make_shared<State>(State{.world = std::move(world), .axes = std::move(axes)});
  state_->here = coordinates_of(state_->world.rank());
  for (std::size_t place = 0; place < state_->axes.size(); ++place) state_->group({place});
}

const std::vector<Axis>& Mesh::axes() const { return state_->axes; }

const Communicator& Mesh::world() const { return state_->world; }

bool Mesh::has(std::string_view axis) const { return state_->find(axis).has_value(); }

int Mesh::size(std::string_view axis) const {
  const auto place = state_->find(axis);
  return place ? state_->axes[*place].size : 1;
}

int Mesh::coordinate(std::string_view axis) const {
  const auto place = state_->find(axis);
  return place ? state_->here[*place] : 0;
}

std::vector<int> Mesh::coordinates_of(int rank) const {
  if (rank < 0 || rank >= state_->world.size()) {
    throw InvalidArgument(Report{.what = "[mesh] this is no rank of the mesh",
                                 .got = fmt::format("{}", rank),
                                 .expected = fmt::format("0 to {}", state_->world.size() - 1)});
  }
  std::vector<int> result(state_->axes.size());
  for (std::size_t i = result.size(); i-- > 0;) {
    result[i] = rank % state_->axes[i].size;
    rank /= state_->axes[i].size;
  }
  return result;
}

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  bool valid = coordinates.size() == state_->axes.size();
  int rank = 0;
  for (std::size_t i = 0; i < coordinates.size() && valid; ++i) {
    valid = coordinates[i] >= 0 && coordinates[i] < state_->axes[i].size;
    rank = rank * state_->axes[i].size + coordinates[i];
  }
  if (valid) return rank;
  throw InvalidArgument(Report{.what = "[mesh] these are no coordinates of the mesh",
                               .got = fmt::format("({})", fmt::join(coordinates, ", ")),
                               .expected = fmt::format("one for each of {}, from 0", to_text())});
}

Communicator Mesh::along(std::string_view axis) const { return state_->groups.at({state_->place_of(axis)}); }

// Without this overload, `along({"a", "b"})` would make one string_view of the two pointers, as its begin and its end.
Communicator Mesh::along(std::initializer_list<std::string_view> axes) const {
  return along_all({axes.begin(), axes.end()});
}

Communicator Mesh::along(const std::vector<std::string>& axes) const { return along_all({axes.begin(), axes.end()}); }

Communicator Mesh::along_all(const std::vector<std::string_view>& axes) const {
  std::vector<std::size_t> places;
  for (const std::string_view axis : axes) {
    places.push_back(state_->place_of(axis));
    if (places.size() > 1 && places.back() <= places[places.size() - 2]) {
      throw InvalidArgument(Report{.what = "[mesh] axes are given from outer to inner, each once",
                                   .got = fmt::format("{}", fmt::join(axes, ", ")),
                                   .expected = fmt::format("some of {}, in that order", to_text())});
    }
  }
  return state_->group(places);
}

std::string Mesh::to_text() const { return text_of(state_->axes); }

std::string Mesh::table() const {
  const std::vector<std::string> hosts = comm::all_gather_bytes(base::host_name(), state_->world);
  std::size_t width = 4;
  for (const std::string& host : hosts) width = std::max(width, host.size());
  std::string text = fmt::format("rank  {:<{}}", "host", width);
  for (const Axis& axis : state_->axes) text += "  " + axis.name;
  for (int rank = 0; rank < state_->world.size(); ++rank) {
    text += fmt::format("\n{:>4}  {:<{}}", rank, hosts[static_cast<std::size_t>(rank)], width);
    const std::vector<int> coordinates = coordinates_of(rank);
    for (std::size_t i = 0; i < coordinates.size(); ++i) {
      text += fmt::format("  {:>{}}", coordinates[i], state_->axes[i].name.size());
    }
  }
  return text;
}

}  // namespace reigen::mesh
