// A communicator of NCCL's, from the first call for it to its end. It never blocks: each call begins something, and
// settled() says when the next may come.
// Thread rule: one owner at a time.
#pragma once

#include <string>
#include <vector>

#include "comm/nccl/api.h"
#include "reigen/base/deadline.h"

namespace reigen::comm::nccl {

// What the ranks of a new communicator must have in common, as text for the store.
std::string new_identity();

class Handle {
 public:
  Handle() = default;
  ~Handle();                       // aborts
  Handle(const Handle&) = delete;  // it is NCCL's
  Handle& operator=(const Handle&) = delete;

  // All ranks of the communicator do this. `most_blocks`: of the device's processors that one call may take; 0: NCCL's
  // choice.
  void begin(const std::string& identity, int size, int rank, int most_blocks = 0);

  bool exists() const { return communicator_ != nullptr; }
  ncclComm_t get() const { return communicator_; }
  // Whether what was begun last is on its stream. Throws BackendError, naming `what`, when it failed, or the network.
  bool settled(const char* what) const;

  // The device stops what it does for them, whatever the other ranks do. False: NCCL is not done with it by then.
  static bool abort(const std::vector<Handle*>& handles, const Deadline& deadline);
  // In good order if the other ranks do the same by then, else as abort().
  static void end(const std::vector<Handle*>& handles, const Deadline& deadline);

 private:
  using Last = ncclResult_t (*)(ncclComm_t);  // call for a communicator
  struct Ending {
    ncclComm_t communicator;
    Last last;
  };
  static bool end_at_once(const std::vector<Ending>& endings, const Deadline& deadline);
  bool is_ending() const;

  ncclComm_t communicator_ = nullptr;
};

}  // namespace reigen::comm::nccl
