// Captures of CUDA graphs in the stand-in. While a stream is captured, its tasks run as usual, so that what is enqueued
// after them finds numbers, and they are recorded. At the end all memory of the device gets the bytes that it had at
// the begin, as if nothing had run.
//
// As in CUDA's mode "thread local", the thread that captures must make no call that waits or allocates, and no thread
// may wait for the captured stream. Such a call fails, and then the capture fails too. One capture at a time.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

namespace reigen::testing::stand_in {

void begin_capture(cudaStream_t stream, std::vector<std::function<void()>>& work);
// Returns the first call that was refused, empty if there was none.
std::string end_capture();

// Adds work to the capture that does not go through a queue. It runs only in replays.
void record(std::function<void()> work);
// Whether this stream is being captured.
bool is_captured(cudaStream_t stream);
// Whether a call that a capture forbids must fail now. If so, notes the call. `stream`: the stream for which the call
// waits, or null.
bool is_refused(const char* call, cudaStream_t stream = nullptr);

// While it lives, the calling thread may make such calls (CUDA's mode "relaxed"), and what it enqueues is not recorded.
struct NotCaptured {
  NotCaptured();
  ~NotCaptured();
  NotCaptured(const NotCaptured&) = delete;
  NotCaptured& operator=(const NotCaptured&) = delete;
};
bool are_tasks_recorded();  // whether no NotCaptured of this thread lives

}  // namespace reigen::testing::stand_in
