// An NCCL communicator, from its creation to its end. The communicator is non-blocking: each NCCL call only begins an
// operation, and settled() says when the next call may be made.
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "comm/nccl/api.h"
#include "reigen/base/deadline.h"

namespace reigen::comm::nccl {

// A new ncclUniqueId as text for the store. All ranks of a communicator create it with the same identity.
std::string new_identity();

class Handle {
 public:
  Handle() = default;
  ~Handle();                       // aborts the communicator
  Handle(const Handle&) = delete;  // an NCCL communicator has one owner
  Handle& operator=(const Handle&) = delete;

  // Begins to create the communicator; all its ranks must call this. `most_blocks`: the most thread blocks that one
  // call may use on the device; 0 means that NCCL chooses.
  void begin(const std::string& identity, int size, int rank, int most_blocks = 0);

  bool exists() const { return communicator_ != nullptr; }
  ncclComm_t get() const { return communicator_; }
  // Whether NCCL has finished the call that was begun last: an operation is then on its stream. Throws BackendError,
  // naming `what`, when the operation or the network failed.
  bool settled(const char* what) const;

  // Aborts the communicators: the device stops their kernels, whatever the other ranks do. Returns false if NCCL has
  // not finished the abort by the deadline.
  static bool abort(const std::vector<Handle*>& handles, const Deadline& deadline);
  // Ends the communicators in good order if the other ranks do the same by the deadline; otherwise aborts them.
  static void end(const std::vector<Handle*>& handles, const Deadline& deadline);

 private:
  using Last = ncclResult_t (*)(ncclComm_t);  // the last call for a communicator: ncclCommDestroy or ncclCommAbort
  struct Ending {
    ncclComm_t communicator;
    Last last;
  };
  static bool end_at_once(const std::vector<Ending>& endings, const Deadline& deadline);
  bool is_ending() const;

  ncclComm_t communicator_ = nullptr;
};

}  // namespace reigen::comm::nccl
