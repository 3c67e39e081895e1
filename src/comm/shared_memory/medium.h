// A Medium is a device (a GPU) whose memory contains the buffers of a group's calls. The device itself adds and copies
// the data of the calls.
//
// The ranks of one machine synchronize through pages in host memory (page.h), whatever memory their buffers lie in. A
// group on host memory has no Medium: there the driver thread, which advances the calls (backend.h), adds and copies.
// A device works asynchronously. So each operation has a Job, which says whether the device has done the work.
// Thread rule: any thread may use a Medium; only the driver thread uses a Job.
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

// The work that one operation gives to a device. The device does the work in the order of the function calls.
class Job {
 public:
  virtual ~Job() = default;
  virtual void reduce(const reduce::Pass& pass) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Ends a part of the job: the part is the work that was requested until now. is_done() says whether the device has
  // completed the part that was ended last.
  virtual void close_part() = 0;
  virtual bool is_done() = 0;
  // Makes work that is enqueued on the stream from now on wait until this Job is destroyed. The Job is destroyed when
  // its operation is complete or has failed.
  virtual void precede(const Stream& stream) = 0;
};

// Makes the stream wait for the end of the job. If there is no job, does nothing and returns false.
inline bool precede_by(const std::unique_ptr<Job>& job, const Stream& stream) {
  if (job) job->precede(stream);
  return job != nullptr;
}

class Medium {
 public:
  virtual ~Medium() = default;
  // The name of the backend that uses this medium.
  virtual const std::string& name() const = 0;
  virtual Device device() const = 0;
  // The most ranks that one call can have.
  virtual int most_ranks() const = 0;

  // Allocates zeroed memory that other ranks of this machine can open. Throws IoError (exit code 71) when the device
  // has not enough memory.
  virtual std::shared_ptr<Segment> create(std::size_t size) = 0;
  // Opens a segment of another rank. Throws IoError when that rank is gone, and BackendError when this rank's device
  // cannot reach the segment. The rank that made the segment should not free it while other ranks have it open. If it
  // does, CUDA does not define what the other ranks see.
  virtual std::shared_ptr<Segment> open(const SegmentAddress& address) = 0;
  // Returns when the device has zeroed the bytes.
  virtual void zero(std::byte* data, std::size_t bytes) = 0;

  // Marks the work that is on the stream now, so that a call can wait for that work. Returns null if the stream has no
  // work. Called on the thread that makes the call.
  virtual std::shared_ptr<Before> mark(const Stream& after) = 0;
  virtual std::unique_ptr<Job> begin() = 0;
  // Zero if no Job and no call waits for the device; otherwise the time since the newest of their waits began. A device
  // wakes no thread when it is done, so a thread that sleeps must ask from time to time.
  virtual std::chrono::nanoseconds busy_for() const = 0;
  // Waits until the device has done all work that jobs have requested until now, but not longer than `limit`. Returns
  // false if the device is not done then.
  virtual bool drain(std::chrono::nanoseconds limit) = 0;
};

}  // namespace reigen::comm::shared_memory
