// Groups for C: how a program joins a group, and the functions of a group apart from its operations.
#include <string>

#include "base/check.h"
#include "c/handles.h"
#include "c/options.h"
#include "net/address.h"
#include "reigen/launch/environment.h"

namespace reigen::c {

namespace {

constexpr std::string_view kTcp = "tcp://";

// The store at tcp://host:port. Rank 0 serves it, at this port only. The group's name is a part of the job's identity,
// so that a rank that expects a different group at this port gets an error.
std::shared_ptr<store::Store> meet_at(std::string_view url, const comm::GroupOptions& group) {
  const auto place = net::parse_endpoint(url.substr(kTcp.size()));
  REIGEN_CHECK(place, "[reigen_comm_create] the store cannot be read\n  got: {}   expected: tcp://host:port", url);
  launch::Environment environment;
  environment.master_port = place->port;
  environment.rank = group.rank;
  environment.world_size = group.size;
  environment.source = "reigen_comm_create";
  environment.port_origin = "its store";
  environment.master_address = place->host;
  environment.job = fmt::format("c/{}/{}", url, group.name);
  return launch::join_job(environment, Deadline::after(group.join_timeout), group.heartbeat_timeout);
}

Communicator create(const reigen_comm_options& options) {
  comm::GroupOptions group = to_cpp(options);
  const std::string_view where = options.store == nullptr ? "" : options.store;
  const bool tcp = where.starts_with(kTcp);
  const bool in_range = group.size >= 1 && group.rank >= 0 && group.rank < group.size;
  if (!where.empty() && in_range)
    group.store = tcp ? meet_at(where, group) : store::make_file_store(std::string(where));
  Communicator communicator(group);
  // Rank 0's store ends with rank 0's group. Without the barrier the store could end before another rank has read the
  // last key that it needs to join.
  if (tcp) communicator.barrier({.tag = "joined"});
  return communicator;
}

constexpr const char* kWhereTo = "the address of a handle";

// Returns the text get(group), or null after an error. The text belongs to the handle.
template <class Get>
const char* text_of(const reigen_comm* comm, const char* function, const Get& get) {
  const char* text = nullptr;
  guarded([&] { text = get(checked(comm, function)); });
  return text;
}

}  // namespace

}  // namespace reigen::c

using reigen::c::checked;
using reigen::c::guarded;
using reigen::c::not_null;

const char* reigen_version() { return REIGEN_VERSION; }

reigen_status reigen_init(const reigen_init_options* options, reigen_comm** comm) {
  return guarded([&] {
    *not_null(comm, "reigen_init", "place for the communicator", reigen::c::kWhereTo) = nullptr;
    *comm = new reigen_comm(reigen::init(reigen::c::to_init_options(options)));
  });
}

reigen_status reigen_comm_create(const reigen_comm_options* options, reigen_comm** comm) {
  return guarded([&] {
    *not_null(comm, "reigen_comm_create", "place for the communicator", reigen::c::kWhereTo) = nullptr;
    *comm = new reigen_comm(reigen::c::create(reigen::c::to_comm_options(options)));
  });
}

reigen_status reigen_split(reigen_comm* comm, int color, int key, reigen_comm** part) {
  return guarded([&] {
    *not_null(part, "reigen_split", "place for the communicator", reigen::c::kWhereTo) = nullptr;
    auto child = checked(comm, "reigen_split").communicator.split(color, key);
    if (child) *part = new reigen_comm(*std::move(child));
  });
}

reigen_status reigen_abort(reigen_comm* comm, const char* cause) {
  return guarded([&] {
    checked(comm, "reigen_abort").communicator.abort(cause == nullptr ? "reigen_abort, without a cause" : cause);
  });
}

void reigen_comm_release(reigen_comm* comm) { delete comm; }

int reigen_rank(const reigen_comm* comm) {
  int rank = -1;
  guarded([&] { rank = checked(comm, "reigen_rank").communicator.rank(); });
  return rank;
}

int reigen_size(const reigen_comm* comm) {
  int size = -1;
  guarded([&] { size = checked(comm, "reigen_size").communicator.size(); });
  return size;
}

const char* reigen_name(const reigen_comm* comm) {
  return reigen::c::text_of(comm, "reigen_name",
                            [](const reigen_comm& group) { return group.communicator.name().c_str(); });
}

const char* reigen_backend(const reigen_comm* comm) {
  return reigen::c::text_of(comm, "reigen_backend",
                            [](const reigen_comm& group) { return group.communicator.backend().c_str(); });
}

const char* reigen_device(const reigen_comm* comm) {
  return reigen::c::text_of(comm, "reigen_device", [](const reigen_comm& group) { return group.device.c_str(); });
}

const char* reigen_device_backend(const reigen_comm* comm) {
  return reigen::c::text_of(comm, "reigen_device_backend",
                            [](const reigen_comm& group) { return group.communicator.device_backend().c_str(); });
}

reigen_status reigen_allocate(reigen_comm* comm, size_t bytes, reigen_memory** memory) {
  return guarded([&] {
    *not_null(memory, "reigen_allocate", "place for the memory", reigen::c::kWhereTo) = nullptr;
    *memory = new reigen_memory{checked(comm, "reigen_allocate").communicator.allocate(bytes)};
  });
}

reigen_status reigen_allocate_on_device(reigen_comm* comm, size_t bytes, reigen_memory** memory) {
  return guarded([&] {
    *not_null(memory, "reigen_allocate_on_device", "place for the memory", reigen::c::kWhereTo) = nullptr;
    const reigen::Communicator& group = checked(comm, "reigen_allocate_on_device").communicator;
    REIGEN_CHECK(!group.device().is_cpu(),
                 "[reigen_allocate_on_device] the group has no GPU\n  fix: set device in the options of the group");
    *memory = new reigen_memory{group.allocate(bytes, group.device())};
  });
}

void* reigen_memory_data(const reigen_memory* memory) {
  void* data = nullptr;
  guarded([&] { data = not_null(memory, "reigen_memory_data", "memory", "a handle of reigen_allocate")->owner.get(); });
  return data;
}

void reigen_memory_release(reigen_memory* memory) { delete memory; }
