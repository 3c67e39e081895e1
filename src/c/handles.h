// What stands behind the handles of the C interface.
#pragma once

#include <memory>

#include "c/error.h"
#include "reigen/comm/call_group.h"
#include "reigen/comm/communicator.h"

struct reigen_comm {
  reigen::Communicator communicator;
  std::unique_ptr<reigen::CallGroup> calls = nullptr;  // from reigen_group_begin to reigen_group_end
};

struct reigen_work {
  reigen::Work work;
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
