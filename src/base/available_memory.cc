#include "base/available_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace reigen::base {

namespace {

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // also for "max": no limit
}

// "inactive_file 4096" in memory.stat: page cache that the kernel drops before it refuses memory.
std::uint64_t reclaimable(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cache;
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// A control group has one inode wherever it is mounted; /proc/meminfo none that would tell.
std::string identity_of(const std::string& file) {
  struct stat found = {};
  if (file.empty() || ::stat(file.c_str(), &found) != 0) return "";
  return " " + std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
}

void take_smaller(AvailableMemory& least, std::uint64_t bytes, const std::string& source, const std::string& file) {
  if (least.source.empty() || bytes < least.bytes) least = {bytes, source, identity_of(file)};
}

// A limit may stand in any group above ours too.
void look_at_groups(AvailableMemory& least, const std::string& mount, std::string group, const GroupFiles& files) {
  for (;;) {
    const std::string folder = mount + group;
    const auto limit = read_number(folder + "/" + files.limit);
    const auto usage = read_number(folder + "/" + files.usage);
    constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;  // version 1 writes a huge number
    if (limit && usage && *limit < kUnlimited) {
      const std::uint64_t used = *usage - std::min(*usage, reclaimable(folder + "/memory.stat", files.cache));
      take_smaller(least, *limit - std::min(*limit, used), "control group limit in " + folder + "/" + files.limit,
                   folder + "/" + files.limit);
    }
    if (group.empty() || group == "/") return;
    group.resize(group.find_last_of('/'));
  }
}

bool lists(const std::string& controllers, const std::string& wanted) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == wanted) return true;
  }
  return false;
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory least;
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:")
      take_smaller(least, kib * 1024, "MemAvailable in /proc/meminfo", "");
  }
  std::ifstream groups(root + "/proc/self/cgroup");  // lines "id:controllers:path"; version 2 has no controllers
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) look_at_groups(least, root + "/sys/fs/cgroup", path, kVersion2);
    if (lists(controllers, "memory")) look_at_groups(least, root + "/sys/fs/cgroup/memory", path, kVersion1);
  }
  std::string kernel;
  std::ifstream(root + "/proc/sys/kernel/random/boot_id") >> kernel;
  least.identity = kernel + least.identity;
  return least;
}

}  // namespace reigen::base
