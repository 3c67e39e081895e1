// A stretch of code that must not wait for another rank: a hook of backward. Another rank may wait for this one further
// on in the same backward (batch statistics, tensor parallel layers), so a wait in a hook is a deadlock of both.
// Whoever waits asks require_waiting_allowed() first.
// Thread rule: a scope counts for its thread.
#pragma once

namespace reigen::base {

class NoWaiting {
 public:
  // `where`: for the text of the error; a string that outlives the scope.
  explicit NoWaiting(const char* where);
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;  // it restores what was
  NoWaiting& operator=(const NoWaiting&) = delete;

 private:
  const char* outer_;
};

// Throws InternalError on a thread that is in such a scope.
void require_waiting_allowed();

}  // namespace reigen::base
