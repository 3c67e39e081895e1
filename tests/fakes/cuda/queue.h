// A stream of the stand-in: a thread with a queue of tasks. be_lazy() and delay_streams() (stand_in.h) say when a task
// begins. A thread that waits for the stream runs the tasks itself, which takes less time than waking the stream's
// thread for each. Thread rule: any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace reigen::testing::stand_in {

// The tasks of a stream, which run one after the other.
class Queue {
 public:
  explicit Queue(int device);
  ~Queue();  // waits until all tasks are done
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return device_; }
  // Returns the task's number, from 1. `writes`: the task writes a word, at which the host may look.
  std::uint64_t push(std::function<void()> task, bool writes = false);
  // A lazy stream begins the tasks up to this number.
  void need(std::uint64_t number);
  void need_all();
  // From now on it is a stream on which the program computes: delay_streams() delays it longer than others.
  void set_computes() { computes_ = true; }
  bool is_idle();
  void wait_until_idle();
  // From now on tasks that are pushed are also added to `work` (capture.h). Null: no longer.
  void record_into(std::vector<std::function<void()>>* work) { recorded_ = work; }

 private:
  void run();
  void run_first(std::unique_lock<std::mutex>& lock);
  void delay(std::unique_lock<std::mutex>& lock);

  const int device_;
  const int number_;  // of the queue, from 1, in the order in which queues are made
  std::mutex mutex_;
  std::condition_variable work_;  // for the stream's thread
  std::condition_variable done_;  // for threads in wait_until_idle()
  std::deque<std::function<void()>> tasks_;
  std::uint64_t begun_ = 0;   // tasks that have begun
  std::uint64_t needed_ = 0;  // the last task that somebody needs
  std::uint64_t writes_ = 0;  // the last task that writes a word
  bool working_ = false;      // a task is running
  bool sleeps_ = false;       // the stream's thread waits for a task
  bool stopping_ = false;
  int waiting_ = 0;  // threads in wait_until_idle()
  std::atomic<bool> computes_{false};
  std::atomic<std::vector<std::function<void()>>*> recorded_{nullptr};
  std::thread worker_;
};

}  // namespace reigen::testing::stand_in
