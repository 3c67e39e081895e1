#include "base/machine/available_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/machine/control_groups.h"

namespace reigen::base {

namespace {

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // also for the text "max", which means no limit
}

// The value of `key` in memory.stat, which has lines such as "inactive_file 4096". The value is the size of page cache
// that the kernel drops before it refuses an allocation.
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

// Identifies a control group by the inode of `file`, the file with its limit. The inode is the same wherever the group
// is mounted. The result is empty if `file` is empty: the caller passes no file for /proc/meminfo, which counts the
// memory of all groups.
std::string identity_of(const std::string& file) {
  struct stat found = {};
  if (file.empty() || ::stat(file.c_str(), &found) != 0) return "";
  return " " + std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
}

void take_smaller(AvailableMemory& least, std::uint64_t bytes, const std::string& source, const std::string& file) {
  if (least.source.empty() || bytes < least.bytes) least = {bytes, source, identity_of(file)};
}

void look_at_group(AvailableMemory& least, const ControlGroup& group) {
  const GroupFiles& files = group.is_unified ? kVersion2 : kVersion1;
  const std::string limit_file = group.folder + "/" + files.limit;
  const auto limit = read_number(limit_file);
  const auto usage = read_number(group.folder + "/" + files.usage);
  // Version 1 of control groups has a huge number for "no limit".
  constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;
  if (!limit || !usage || *limit >= kUnlimited) return;
  const std::uint64_t used = *usage - std::min(*usage, reclaimable(group.folder + "/memory.stat", files.cache));
  take_smaller(least, *limit - std::min(*limit, used), "control group limit in " + limit_file, limit_file);
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
  for (const ControlGroup& group : control_groups("memory", root)) look_at_group(least, group);
  std::string kernel;
  std::ifstream(root + "/proc/sys/kernel/random/boot_id") >> kernel;
  least.identity = kernel + least.identity;
  return least;
}

}  // namespace reigen::base
