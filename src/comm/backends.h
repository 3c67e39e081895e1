// The backends that GroupOptions::backend can name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/call/algorithm_choice.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {

struct BackendEntry {
  std::string name;
  std::vector<Family> families;  // the sets of algorithms that the backend uses; empty if a library chooses
  // Makes the backend of a group. Blocks until all ranks of the group are there. Throws BackendError (exit code 69)
  // when this build does not have the backend.
  std::unique_ptr<Backend> (*make)(const GroupOptions& options) = nullptr;
  bool joins_machines = false;           // GroupOptions::network may name it, because it can connect machines
  DeviceKind memory = DeviceKind::kCpu;  // the memory in which its calls' buffers lie
};

// Whether calls of this backend can use algorithms of the family.
bool offers(const BackendEntry& entry, Family family);

inline constexpr const char* kAutomatic = "auto";

const std::vector<BackendEntry>& backends();

// The values of GroupOptions::backend: "auto", "self" and the names of backends().
std::vector<std::string> backend_names();
// The values of GroupOptions::device_backend besides "auto".
std::vector<std::string> device_backend_names();

// Makes `backend`, `device_backend` and `device` consistent. If `backend` names a device's backend, that name moves to
// `device_backend`. If a device's backend is named but no device, `device` becomes cuda. Throws InvalidArgument for an
// unknown name.
GroupOptions settled(GroupOptions options);

// Returns options.engine if it is set, else the entry that options.backend names.
const BackendEntry& engine_of(const GroupOptions& options);

// The entry with this name. The backend of the entry "auto" depends on the machines that the ranks are on. The entry
// "self" is for one rank alone and has no `make`. Throws InvalidArgument for an unknown name.
const BackendEntry& find_backend(const std::string& name);

}  // namespace reigen::comm
