#include "comm/backends.h"

#include <algorithm>

#include "base/check.h"
#include "comm/cuda_ipc/cuda_ipc_backend.h"
#include "comm/hierarchical/hierarchical_backend.h"
#include "comm/mpi/mpi_backend.h"
#include "comm/nccl/nccl_backend.h"
#include "comm/self/self_backend.h"
#include "comm/shared_memory/shared_memory_backend.h"
#include "comm/tcp/tcp_backend.h"

namespace reigen::comm {

namespace {

[[noreturn]] void throw_no_common(const std::string& backend) {
  throw BackendError(Report{.what = fmt::format("the backend \"{}\" has no memory that all ranks share", backend),
                            .got = "allocate_shared()",
                            .expected = "a group of ranks on one machine, over shared memory",
                            .fix = "use allocate(), and an all_gather that copies"});
}

}  // namespace

Backend::Common Backend::create_common(std::size_t) { throw_no_common(name()); }
std::shared_ptr<void> Backend::open_common(const std::string&) { throw_no_common(name()); }

const std::vector<BackendEntry>& backends() {
  static const std::vector<BackendEntry> kBackends = {
      {"shared_memory", {Family::kSharedMemory}, &shared_memory::make_backend, false},
      {"tcp", {Family::kTcp}, &tcp::make_backend, true},
      {"mpi", {}, &mpi::make_backend, true},
      {"nccl", {}, &nccl::make_backend, false, DeviceKind::kCuda},
      {"cuda_ipc", {}, &cuda_ipc::make_backend, false, DeviceKind::kCuda},
      {"hierarchical", {Family::kTcp, Family::kSharedMemory}, &hierarchical::make_backend, false},
  };
  return kBackends;
}

bool offers(const BackendEntry& entry, Family family) {
  return std::find(entry.families.begin(), entry.families.end(), family) != entry.families.end();
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names{kAutomatic, self::backend_name()};
  for (const BackendEntry& entry : backends()) names.push_back(entry.name);
  return names;
}

std::vector<std::string> device_backend_names() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backends()) {
    if (entry.memory != DeviceKind::kCpu) names.push_back(entry.name);
  }
  return names;
}

GroupOptions settled(GroupOptions options) {
  if (engine_of(options).memory != DeviceKind::kCpu) {
    REIGEN_CHECK(options.device_backend == kAutomatic || options.device_backend == options.backend,
                 "two backends for the memory of a device\n  got: backend \"{}\", device_backend \"{}\"   "
                 "expected: one of them",
                 options.backend, options.device_backend);
    options.device_backend = options.backend;
    options.backend = kAutomatic;
  }
  if (options.device_backend != kAutomatic) {
    const std::vector<std::string> names = device_backend_names();
    REIGEN_CHECK(std::find(names.begin(), names.end(), options.device_backend) != names.end(),
                 "no backend for the memory of a device\n  got: \"{}\"   expected: auto, {}", options.device_backend,
                 fmt::join(names, ", "));
    if (options.device.is_cpu()) options.device = Device::cuda();
  }
  return options;
}

const BackendEntry& engine_of(const GroupOptions& options) {
  return options.engine != nullptr ? *options.engine : find_backend(options.backend);
}

const BackendEntry& find_backend(const std::string& name) {
  static const BackendEntry automatic{
      kAutomatic, {Family::kTcp, Family::kSharedMemory}, &hierarchical::make_automatic, false};
  static const BackendEntry alone{self::backend_name(), {}, nullptr, false};
  if (name == automatic.name) return automatic;
  if (name == alone.name) return alone;
  const auto found =
      std::find_if(backends().begin(), backends().end(), [&](const BackendEntry& entry) { return entry.name == name; });
  REIGEN_CHECK(found != backends().end(), "unknown backend\n  got: \"{}\"   expected: {}", name,
               fmt::join(backend_names(), ", "));
  return *found;
}

}  // namespace reigen::comm
