// Opens the lanes of a group and hands NCCL what goes over them, on a thread of its own: a short send is done before
// anybody has come to take it, and nobody who drives waits for the store.
// Thread rule: as Lane's members say; the thread runs from the first lane on.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/nccl/lane.h"
#include "reigen/comm/options.h"

namespace reigen::comm::nccl {

class Courier {
 public:
  // `tell`: called when something has moved; any thread.
  Courier(const GroupOptions& options, int device, std::function<void()> tell);
  ~Courier();
  Courier(const Courier&) = delete;  // a thread belongs to it
  Courier& operator=(const Courier&) = delete;

  // caller. The one from this rank to another, or from another to this one.
  Lane& lane_to(int rank) { return lane(options_.rank, rank); }
  Lane& lane_from(int rank) { return lane(rank, options_.rank); }
  // driver.
  void push(Lane& lane, std::shared_ptr<Transfer> transfer);
  // driver. Throws what ended the thread: a store that is lost, NCCL's words.
  void throw_if_failed() const;

  // Waits a moment until the receivers have what was sent.
  void flush();
  // The thread stops; the communicators are the caller's to end.
  std::vector<Handle*> close();
  // After them: whether the device has stopped.
  bool is_idle() const;

 private:
  struct State;
  Lane& lane(int from, int to);
  static void run(const std::shared_ptr<State>& state);
  static bool ask(State& state, std::unique_lock<std::mutex>& lock);

  const GroupOptions& options_;
  const std::shared_ptr<State> state_;  // the thread's, too: it may hang in a store that does not answer
  std::thread thread_;
};

}  // namespace reigen::comm::nccl
