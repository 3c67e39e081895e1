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
  std::vector<Family> families;  // the families from which it takes algorithms; none: a library chooses
  // Blocks until all ranks are there. Throws BackendError (69) when this build does not have it.
  std::unique_ptr<Backend> (*make)(const GroupOptions& options) = nullptr;
  bool joins_machines = false;           // may be GroupOptions::network
  DeviceKind memory = DeviceKind::kCpu;  // the memory that it carries
};

// Whether the entry's calls may run algorithms of the family.
bool offers(const BackendEntry& entry, Family family);

inline constexpr const char* kAutomatic = "auto";

const std::vector<BackendEntry>& backends();

// The values of GroupOptions::backend: "auto", "self" and the names of backends().
std::vector<std::string> backend_names();
// The values of GroupOptions::device_backend besides "auto".
std::vector<std::string> device_backend_names();

// Brings the options into one form: a device's backend that `backend` names moves to `device_backend`, and `device`
// becomes cuda if only a device's backend was named. Throws InvalidArgument for an unknown name.
GroupOptions settled(GroupOptions options);

// The entry options.engine if there is one, else the entry that options.backend names.
const BackendEntry& engine_of(const GroupOptions& options);

// The entry with this name. The entry of "auto" looks at which machines the ranks are on; the entry of "self", for
// one rank alone, has no `make`. Throws InvalidArgument for an unknown name.
const BackendEntry& find_backend(const std::string& name);

}  // namespace reigen::comm
