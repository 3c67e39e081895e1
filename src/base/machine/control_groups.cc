#include "base/machine/control_groups.h"

#include <fstream>
#include <optional>
#include <sstream>

namespace reigen::base {

namespace {

bool lists(const std::string& words, const std::string& wanted) {
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    if (word == wanted) return true;
  }
  return false;
}

// A line "id:controllers:path" of /proc/PID/cgroup; in version 2 `controllers` is empty.
struct Membership {
  std::string controllers;
  std::string path;
};

std::vector<Membership> memberships_of(const std::string& file) {
  std::vector<Membership> found;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    found.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return found;
}

bool begins_with(const std::string& path, const std::string& above) {
  return above == "/" || path == above || path.starts_with(above + "/");
}

// A mount of a cgroup hierarchy. `top` is the path of the group that is mounted at `point`.
struct Mount {
  std::string point;
  std::string top = "/";
};

// Finds the mount that contains the membership's group. In a container /proc/PID/cgroup may have the host's paths. In
// this case only the container's own group is mounted, not the whole hierarchy.
std::optional<Mount> mount_of(const Membership& membership, const std::string& root) {
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string id, parent, device, top, point, word, type, source, options;
    words >> id >> parent >> device >> top >> point;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    const bool fits =
        membership.controllers.empty()
            ? type == "cgroup2"
            : type == "cgroup" && lists(options, membership.controllers.substr(0, membership.controllers.find(',')));
    if (fits && begins_with(membership.path, top)) return Mount{point, top};
  }
  return std::nullopt;
}

Mount usual_mount(const Membership& membership, const std::string& controller) {
  return {.point = membership.controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller};
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  for (const Membership& membership : memberships_of(root + "/proc/self/cgroup")) {
    const bool unified = membership.controllers.empty();
    if (!unified && !lists(membership.controllers, controller)) continue;
    const Mount mount = mount_of(membership, root).value_or(usual_mount(membership, controller));
    const std::string top = mount.top == "/" ? "" : mount.top;
    std::string below = membership.path.substr(top.size());
    for (;;) {
      if (below == "/") below.clear();
      groups.push_back({root + mount.point + below, unified, top + below});
      if (below.empty()) break;
      below.resize(below.find_last_of('/') == std::string::npos ? 0 : below.find_last_of('/'));
    }
  }
  return groups;
}

bool is_below(const ControlGroup& group, const std::string& controller, pid_t pid, const std::string& root) {
  const std::vector<Membership> memberships = memberships_of(root + "/proc/" + std::to_string(pid) + "/cgroup");
  if (memberships.empty()) return true;
  for (const Membership& membership : memberships) {
    const bool meant = group.is_unified ? membership.controllers.empty() : lists(membership.controllers, controller);
    if (meant) return begins_with(membership.path, group.path.empty() ? "/" : group.path);
  }
  return true;
}

}  // namespace reigen::base
