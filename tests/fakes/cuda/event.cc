// The events of the stand-in.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "fakes/cuda/capture.h"
#include "fakes/cuda/device.h"
#include "fakes/cuda/stand_in.h"

namespace stand_in = reigen::testing::stand_in;

// `done` when the stream has done everything that was on it when an event was recorded.
struct Mark {
  // A lazy stream begins what is before the mark.
  void need() {
    std::lock_guard lock(mutex);
    if (queue != nullptr) queue->need(number);
  }
  void wait() {
    if (!done.load()) need();
    done.wait(false);
  }

  std::mutex mutex;
  stand_in::Queue* queue = nullptr;  // null when done: the stream may be gone
  std::uint64_t number = 0;          // of the mark's task
  std::atomic<bool> done{false};
  std::chrono::steady_clock::time_point time;  // of the host, when it was done
};

struct CUevent_st {
  int device;
  std::mutex mutex;
  std::shared_ptr<Mark> mark;
};

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st{.device = stand_in::device_now(), .mutex = {}, .mark = {}};
  stand_in::living().events += 1;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  stand_in::living().events -= 1;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  stand_in::Queue& queue = stand_in::queue_of(stream);
  if (queue.device() != event->device) return cudaErrorInvalidResourceHandle;
  auto mark = std::make_shared<Mark>();
  std::lock_guard of_event(event->mutex);
  std::lock_guard lock(mark->mutex);  // whoever finds the mark in the event waits until it knows its stream
  event->mark = mark;
  const std::uint64_t number = queue.push([mark] {
    {
      std::lock_guard done(mark->mutex);
      mark->queue = nullptr;
    }
    mark->time = std::chrono::steady_clock::now();
    mark->done.store(true);
    mark->done.notify_all();
  });
  mark->queue = &queue;
  mark->number = number;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (stand_in::is_refused("cudaEventQuery")) return cudaErrorStreamCaptureUnsupported;
  std::lock_guard lock(event->mutex);
  if (!event->mark || event->mark->done.load()) return cudaSuccess;
  event->mark->need();
  return cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  std::lock_guard lock(event->mutex);
  if (!event->mark) return cudaSuccess;
  stand_in::queue_of(stream).push([mark = event->mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (stand_in::is_refused("cudaEventSynchronize")) return cudaErrorStreamCaptureUnsupported;
  std::shared_ptr<Mark> mark;
  {
    std::lock_guard lock(event->mutex);
    mark = event->mark;
  }
  stand_in::counts(event->device).waits += 1;
  if (mark) mark->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto time_of = [](cudaEvent_t event) {
    std::lock_guard lock(event->mutex);
    if (!event->mark || !event->mark->done.load()) stand_in::die("the time of an event that is not done");
    return event->mark->time;
  };
  *milliseconds = std::chrono::duration<float, std::milli>(time_of(end) - time_of(begin)).count();
  return cudaSuccess;
}

}  // extern "C"
