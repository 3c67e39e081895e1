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
  std::vector<Family> families;  // whose algorithms it chooses from; none: the choice is a library's
  // Blocks until all ranks are there. Throws BackendError (69) when this build does not have it.
  std::unique_ptr<Backend> (*make)(const GroupOptions& options) = nullptr;
  bool joins_machines = false;           // may be GroupOptions::network
  DeviceKind memory = DeviceKind::kCpu;  // what it carries
};

// Whether the entry's calls may run algorithms of the family.
bool offers(const BackendEntry& entry, Family family);

inline constexpr const char* kAutomatic = "auto";

const std::vector<BackendEntry>& backends();

// What GroupOptions::backend may say: "auto", "self" and the others.
std::vector<std::string> backend_names();
// What GroupOptions::device_backend may say beside "auto".
std::vector<std::string> device_backend_names();

// As asked for, in one way: the device's backend where `backend` named it, a device where only its backend was named.
// Throws InvalidArgument for a name that is none.
GroupOptions settled(GroupOptions options);

// The group's own engine, or the one that its backend names.
const BackendEntry& engine_of(const GroupOptions& options);

// The entry of options.backend; "auto" looks at where the ranks are, and "self", for one rank alone, makes nothing.
// Throws InvalidArgument for a name that is none.
const BackendEntry& find_backend(const std::string& name);

}  // namespace reigen::comm
