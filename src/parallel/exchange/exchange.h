// Turns the gradients of a backward into their mean over the ranks. There are three ways to do so, each in a class. The
// layout selects one of them when a model is wrapped (gradient_reducer.cc). The fourth class wraps one of the three:
//   ExchangeBuckets  a GradientStrategy exchanges buckets; every rank gets the whole mean
//   ExchangeShares   one call sums the gradients of a flat range; each rank gets its share of the mean
//   ExchangeInStep   no gradient is sent; in its optimizer step each rank averages its share of all ranks' gradients
//   Joined           wraps an exchange, so that ranks whose data has ended take part in it
//
// A round averages gradients once. It begins with begin(). Then take() and ready() are called for each gradient. It
// ends with finish(), or with abandon() if the backward has failed. Rounds do not overlap, and all ranks make the same
// rounds in the same order.
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
  std::int64_t step = 0;         // the number in the tags of the round's calls
  bool compares_weights = true;  // whether ranks compare a hash of some weights (weight_sample.h)
};

// The ranks that have data. Without a Join these are all ranks. Under a Join (reigen/parallel/join.h) ranks may have
// different numbers of batches, so the data of some ranks ends earlier.
struct Participants {
  int first = 0;                    // the lowest rank that has data
  BufferSync::Contributors newest;  // the ranks whose buffers are the newest
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // ---- Before a forward

  // Called before buffers are synchronised for a forward that a backward of all ranks follows. Under a Join all ranks
  // then ask each other which of them have data, and this call waits for the answer. participants() returns the last
  // answer.
  virtual void announce_forward(const std::string&) {}
  virtual Participants participants() const = 0;
  // Called before every forward, even if the next backward only adds gradients up and does not average them.
  virtual void begin_forward() {}

  // ---- Called from hooks: must not wait (base/no_waiting.h)

  // Whether hooks must call before_gradient().
  virtual bool looks_ahead() const { return false; }
  // Called when a gradient of the parameter is about to be added to `.grad`.
  virtual void before_gradient(std::size_t) {}
  // Called when `.grad` of the parameter is complete. Moves the gradient to the memory from which other ranks get it.
  virtual void take(std::size_t parameter) = 0;
  virtual void begin(const Round& round) = 0;
  // Called once in a round for each parameter, after take() of its gradient. Starts the buckets that are complete.
  virtual void ready(std::size_t parameter) = 0;

  // ---- Called where backward enters a unit (unit_watch.h)

  // Whether enter_unit() would start a bucket now, because backward is done with the bucket's unit.
  virtual bool is_due() const { return false; }
  // Starts the buckets that are due, and waits until there is memory for the gradients of the unit that backward
  // enters.
  virtual void enter_unit() {}

  // ---- After backward

  // Starts the round's remaining calls and waits for all of its calls. Afterwards `.grad` of every parameter that has a
  // gradient on some rank is the mean, or stands for the mean: it is a mark (tensor/flat/gradient_share.h), or this
  // rank's gradient, which the step averages (tensor/flat/gradient_rows.h). `first`: the lowest rank that has data.
  virtual void finish(int first) = 0;
  // Waits for the calls that were started. Each of these calls ends: if the other ranks do not start it too, it fails.
  virtual void abandon() = 0;
  // Called when a backward has ended or has failed.
  virtual void end_backward() {}

  // ---- Queries

  // Whether a call was started, and neither finish() nor abandon() has waited for it yet.
  virtual bool is_under_way() const = 0;
  virtual std::uint64_t bytes_given() const = 0;
  virtual std::size_t bucket_count() const { return 0; }
  virtual const std::vector<BucketTimes>& bucket_times() const = 0;  // of this round; between rounds, of the last round
  // How many memory blocks were allocated so far for gradients that are sent.
  virtual std::int64_t allocations() const { return 0; }
  // How long this rank has waited so far in the backward of this round.
  virtual std::chrono::duration<double> waited_in_backward() const { return {}; }
};

}  // namespace reigen::parallel
