// How the gradients that a backward makes become the mean over the ranks. There are three ways, chosen once by the
// layout (gradient_reducer.cc), and one around another:
//   ExchangeBuckets  buckets travel through a GradientStrategy; every rank gets all of the mean
//   ExchangeShares   ranges travel; each rank gets its share of the mean
//   ExchangeInStep   nothing travels; whoever steps reads all ranks' gradients and averages its share
//   Joined           ranks whose data has ended take part in another exchange
//
// One round after the other: begin(); take() and ready() as gradients come; finish(), or abandon() after a backward
// that failed. All ranks make the same rounds.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/buffer_sync.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::parallel {

struct Round {
  std::int64_t step = 0;         // in the tags of its calls
  bool compares_weights = true;  // the first bucket tells a sample of this rank's weights
};

// Ranks that have data: all but those whose data has ended under a Join.
struct Participants {
  int first = 0;                    // the lowest
  BufferSync::Contributors newest;  // whose buffers are the newest
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // ---- In front of a forward that is followed by a backward of all ranks

  // Buffers are about to be brought together, for participants(). May wait.
  virtual void announce_forward(const std::string&) {}
  virtual Participants participants() const = 0;
  // A forward begins, of a backward that averages or that only adds up.
  virtual void begin_forward() {}

  // ---- From hooks: nothing waits (base/no_waiting.h)

  // Whether before_gradient() is to be called.
  virtual bool looks_ahead() const { return false; }
  // A gradient of the parameter is about to be added to `.grad`.
  virtual void before_gradient(std::size_t) {}
  // `.grad` of the parameter is complete. The exchange moves it to where it needs it.
  virtual void take(std::size_t parameter) = 0;
  virtual void begin(const Round& round) = 0;
  // The parameter's gradient has been taken, the last one in this round. Starts what is complete.
  virtual void ready(std::size_t parameter) = 0;

  // ---- Where backward enters a unit (unit_watch.h)

  // Whether something that backward has left behind is to be started.
  virtual bool is_due() const { return false; }
  // Starts it, and waits until there is memory for the gradients of the unit.
  virtual void enter_unit() {}

  // ---- After backward

  // Waits. `.grad` = the mean, or stands for it, of every parameter that has a gradient on some rank. `first`: the
  // lowest rank that has data.
  virtual void finish(int first) = 0;
  // Waits for what was started: the other ranks started it as well, or fail.
  virtual void abandon() = 0;
  // A backward has ended, or was given up.
  virtual void end_backward() {}

  // ---- What others ask

  // Whether a call was started for which nobody has waited.
  virtual bool is_under_way() const = 0;
  virtual std::uint64_t bytes_given() const = 0;
  virtual std::size_t bucket_count() const { return 0; }
  virtual const std::vector<BucketTimes>& bucket_times() const = 0;  // of the last round, or the one under way
  // Blocks of memory that were allocated for gradients on their way, so far.
  virtual std::int64_t allocations() const { return 0; }
  // How long this round has waited in backward so far.
  virtual std::chrono::duration<double> waited_in_backward() const { return {}; }
};

}  // namespace reigen::parallel
