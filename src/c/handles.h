// The types of the handles of the C interface.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "c/error.h"
#include "reigen/comm/call_list.h"
#include "reigen/comm/communicator.h"

namespace reigen::c {

// The state of an asynchronous call. The call's handle points to it. All calls between reigen_group_begin and
// reigen_group_end share one Pending. reigen_group_end first sets `work`, or sets `refused` if it refused the calls.
// Then it sets `begun`.
struct Pending {
  Work work = {};
  std::exception_ptr refused = nullptr;
  std::atomic<bool> begun{false};
};

struct Collected {
  CallList list = {};
  std::shared_ptr<Pending> pending = std::make_shared<Pending>();
};

}  // namespace reigen::c

struct reigen_comm {
  explicit reigen_comm(reigen::Communicator group) : communicator(std::move(group)) {}

  reigen::Communicator communicator;
  std::string device = reigen::to_string(communicator.device());
  std::optional<reigen::c::Collected> calls = {};  // set between reigen_group_begin and reigen_group_end
};

struct reigen_work {
  explicit reigen_work(reigen::Device of_group) : device(of_group) {}
  reigen_work(reigen::Device of_group, std::shared_ptr<reigen::c::Pending> of_call)
      : device(of_group), pending(std::move(of_call)) {}

  reigen::Device device;
  std::shared_ptr<reigen::c::Pending> pending = std::make_shared<reigen::c::Pending>();
};

struct reigen_memory {
  std::shared_ptr<void> owner;
};

namespace reigen::c {

inline reigen_comm& checked(reigen_comm* comm, const char* function) {
  return *not_null(comm, function, "communicator", "a handle of reigen_init, reigen_comm_create or reigen_split");
}

inline reigen_comm& checked(const reigen_comm* comm, const char* function) {
  return checked(const_cast<reigen_comm*>(comm), function);
}

}  // namespace reigen::c
