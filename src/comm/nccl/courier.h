// A lane carries the messages from one rank to another (lane.h). The courier opens the lanes of a group and gives their
// transfers to NCCL, on a thread of its own. A courier also takes in short messages for which its rank has made no recv
// yet, so a short send completes without this recv. Only the courier's thread waits for the store; the thread that
// drives the group's calls never does.
// Thread rule: as each member says; lane.h defines "Caller" and "Driver". The first lane starts the courier's thread.
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
  // `tell`: called by the courier's thread when a transfer or a lane has made progress, or when the thread has failed.
  Courier(const GroupOptions& options, int device, std::function<void()> tell);
  ~Courier();
  Courier(const Courier&) = delete;  // it owns a thread
  Courier& operator=(const Courier&) = delete;

  // Caller. lane_to() returns the lane from this rank to `rank`, lane_from() the lane from `rank` to this rank. The
  // first call for a lane creates the lane.
  Lane& lane_to(int rank) { return lane(options_.rank, rank); }
  Lane& lane_from(int rank) { return lane(rank, options_.rank); }
  // Driver. Queues a transfer on a lane.
  void push(Lane& lane, std::shared_ptr<Transfer> transfer);
  // Driver. Throws the error that ended the courier's thread: the store was lost, or NCCL failed.
  void throw_if_failed() const;

  // Waits until the receivers have the frames (lane.h) of all messages that this rank sent, for two seconds at most. A
  // frame contains the data of a short message.
  void flush();
  // Stops the thread, and returns the communicators of all lanes, which the caller must end.
  std::vector<Handle*> close();
  // Whether the device has no more work on the lanes' streams. Call it after the communicators were ended.
  bool is_idle() const;

 private:
  struct State;
  Lane& lane(int from, int to);
  static void run(const std::shared_ptr<State>& state);
  static bool ask(State& state, std::unique_lock<std::mutex>& lock);

  const GroupOptions& options_;
  const std::shared_ptr<State> state_;  // the thread owns it too, because the thread may outlive the courier
  std::thread thread_;
};

}  // namespace reigen::comm::nccl
