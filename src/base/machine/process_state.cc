#include "base/machine/process_state.h"

#include <dirent.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace reigen::base {

namespace {

// The part of /proc/PID/stat after the process's name: "S 123 ...". The name may contain any character, also ')'.
std::string behind_name(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? "" : text.substr(end + 2);
}

}  // namespace

char state_of(pid_t pid) {
  const std::string text = behind_name(pid);
  return text.empty() ? '?' : text.front();
}

pid_t parent_of(pid_t pid) {
  std::istringstream text(behind_name(pid));
  char state = 0;
  pid_t parent = 0;
  return text >> state >> parent ? parent : 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  const std::string folder = fmt::format("/proc/{}/task", pid);
  DIR* tasks = ::opendir(folder.c_str());
  if (tasks == nullptr) return children;
  while (const dirent* task = ::readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    std::ifstream file(folder + "/" + task->d_name + "/children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  ::closedir(tasks);
  return children;
}

pid_t find_stopped(pid_t pid) {
  if (state_of(pid) == 'T') return pid;
  for (const pid_t child : children_of(pid)) {
    if (const pid_t stopped = find_stopped(child); stopped != 0) return stopped;
  }
  return 0;
}

}  // namespace reigen::base
