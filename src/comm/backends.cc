#include "comm/backends.h"

#include <algorithm>

#include "base/check.h"
#include "comm/self/self_backend.h"
#include "comm/shared_memory/shared_memory_backend.h"
#include "comm/tcp/tcp_backend.h"

namespace reigen::comm {

const std::vector<BackendEntry>& backends() {
  static const std::vector<BackendEntry> kBackends = {
      {"shared_memory", &shared_memory::make_backend},
      {"tcp", &tcp::make_backend},
  };
  return kBackends;
}

std::string backend_names() {
  std::string names = "auto, " + self::backend_name();
  for (const BackendEntry& entry : backends()) names += ", " + entry.name;
  return names;
}

const BackendEntry& find_backend(const std::string& name) {
  if (name == "auto") return backends().front();
  const auto found =
      std::find_if(backends().begin(), backends().end(), [&](const BackendEntry& entry) { return entry.name == name; });
  REIGEN_CHECK(found != backends().end(), "unknown backend\n  got: \"{}\"   expected: {}", name, backend_names());
  return *found;
}

}  // namespace reigen::comm
