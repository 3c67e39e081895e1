// A scope whose code must not wait for another rank: a hook of backward. The other rank may be further on in the same
// backward and wait for this rank there (batch statistics, tensor parallel layers). A wait in the hook would then be a
// deadlock. Every function that waits for another rank calls require_waiting_allowed() first.
// Thread rule: a scope counts for the thread that opened it.
#pragma once

namespace reigen::base {

class NoWaiting {
 public:
  // `where`: names the scope in the text of the error. The string must outlive the scope.
  explicit NoWaiting(const char* where);
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;  // its destructor restores the outer scope, which must happen once
  NoWaiting& operator=(const NoWaiting&) = delete;

 private:
  const char* outer_;
};

// Throws InternalError if the calling thread is in a NoWaiting scope.
void require_waiting_allowed();

}  // namespace reigen::base
