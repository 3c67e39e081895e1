// The memory that a group's calls lie in where it is not the host's, and who works on it.
//
// The ranks of one machine meet through their pages, whatever memory their buffers lie in. Where it is the host's, the
// driving thread adds and copies, and there is no Medium. A device does what it is told later: each operation has a
// Job, which is asked whether that is done.
// Thread rule: any thread; a Job belongs to the thread that drives.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "comm/call/call.h"
#include "comm/reduce/reduce.h"
#include "comm/shared_memory/segment.h"
#include "reigen/device/device.h"

namespace reigen::comm::shared_memory {

// What one operation has a device do. Everything runs in the order in which it is asked for.
class Job {
 public:
  virtual ~Job() = default;
  virtual void reduce(const reduce::Pass& pass) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // All that was asked for until now is one part: is_done() says whether the device is through with it.
  virtual void close_part() = 0;
  virtual bool is_done() = 0;
  // What comes on the stream from now on waits until this Job is destroyed: when its operation is complete, or has
  // failed.
  virtual void precede(const Stream& stream) = 0;
};

// Whether the stream now waits for the job's end.
inline bool precede_by(const std::unique_ptr<Job>& job, const Stream& stream) {
  if (job) job->precede(stream);
  return job != nullptr;
}

class Medium {
 public:
  virtual ~Medium() = default;
  // The name of the backend.
  virtual const std::string& name() const = 0;
  virtual Device device() const = 0;
  // Ranks that one call can have.
  virtual int most_ranks() const = 0;

  // A piece of zeroed memory that ranks of this machine can open. Throws IoError (71) when there is no more.
  virtual std::shared_ptr<Segment> create(std::size_t size) = 0;
  // Another rank's. Throws IoError when its owner is gone, BackendError when this rank cannot reach it. Its owner
  // should keep it as long as others have it open: what they then see is CUDA's choice.
  virtual std::shared_ptr<Segment> open(const SegmentAddress& address) = 0;
  // Returns when it is done.
  virtual void zero(std::byte* data, std::size_t bytes) = 0;

  // What the stream has to do until now; null: nothing. On the thread that calls.
  virtual std::shared_ptr<Before> mark(const Stream& after) = 0;
  virtual std::unique_ptr<Job> begin() = 0;
  // How long the youngest of the jobs has waited for the device, which rings no bell when it is done; zero: none waits.
  virtual std::chrono::nanoseconds busy_for() const = 0;
  // Waits until the device is through with what jobs have asked for until now, for as long as `limit`. False: it is
  // not.
  virtual bool drain(std::chrono::nanoseconds limit) = 0;
};

}  // namespace reigen::comm::shared_memory
