#include "fakes/cuda/capture.h"

#include <fmt/format.h>

#include <mutex>
#include <thread>
#include <utility>

#include "fakes/cuda/device.h"

namespace reigen::testing::stand_in {

namespace {

struct Capture {
  std::mutex mutex;
  Queue* queue = nullptr;  // null: no stream is being captured
  std::vector<std::function<void()>>* work = nullptr;
  std::thread::id thread;
  SavedMemory before;
  std::string refused;
};
Capture& capture() {
  static auto* const one = new Capture;
  return *one;
}
thread_local int not_captured = 0;

}  // namespace

void begin_capture(cudaStream_t stream, std::vector<std::function<void()>>& work) {
  Queue& queue = queue_of(stream);
  if (stream == nullptr || stream == cudaStreamLegacy) die("a capture of the default stream");
  wait_until_idle(queue.device());
  const std::lock_guard lock(capture().mutex);
  if (capture().queue != nullptr) die("two captures at a time");
  capture().queue = &queue;
  capture().work = &work;
  capture().thread = std::this_thread::get_id();
  capture().before = save_memory(queue.device());
  capture().refused.clear();
  queue.record_into(&work);
}

std::string end_capture() {
  Queue* queue = nullptr;
  {
    const std::lock_guard lock(capture().mutex);
    queue = capture().queue;
    if (queue == nullptr) die("a capture ends that has not begun");
    queue->record_into(nullptr);
    capture().queue = nullptr;
  }
  put_back(queue->device(), capture().before);
  capture().before.clear();
  return capture().refused;
}

void record(std::function<void()> work) {
  const std::lock_guard lock(capture().mutex);
  capture().work->push_back(std::move(work));
}

bool is_captured(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return false;
  const std::lock_guard lock(capture().mutex);
  return capture().queue != nullptr && capture().queue == &queue_of(stream);
}

bool is_refused(const char* call, cudaStream_t stream) {
  if (not_captured > 0) return false;
  const std::lock_guard lock(capture().mutex);
  if (capture().queue == nullptr) return false;
  const bool is_own = capture().thread == std::this_thread::get_id();
  if (!is_own && (stream == nullptr || capture().queue != &queue_of(stream))) return false;
  if (capture().refused.empty()) capture().refused = call;
  return true;
}

NotCaptured::NotCaptured() { ++not_captured; }
NotCaptured::~NotCaptured() { --not_captured; }
bool are_tasks_recorded() { return not_captured == 0; }

}  // namespace reigen::testing::stand_in
