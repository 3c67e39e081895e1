// Marks a scope in which code must not wait for another rank. An example is a hook of backward. Another rank may
// already be at a later layer of the same backward pass, and may wait for this rank in that layer (batch statistics,
// tensor parallel layers). If the hook on this rank waited for the other rank as well, this would be a deadlock. Every
// function calls require_waiting_allowed() before it waits for another rank.
// Thread rule: a scope counts for the thread that opened it.
#pragma once

#include <cstdint>

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

// Whether the calling thread is in no NoWaiting scope.
bool waiting_is_allowed();

// Throws InternalError if the calling thread is in a NoWaiting scope.
void require_waiting_allowed();

// How often the calling thread has called require_waiting_allowed().
std::int64_t waits_of_this_thread();

}  // namespace reigen::base
