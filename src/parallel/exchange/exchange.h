// How the gradients of a backward become the mean over the ranks. There are three ways. The layout selects one of them
// when a model is wrapped (gradient_reducer.cc). A fourth class wraps another exchange:
//   ExchangeBuckets  a GradientStrategy exchanges buckets; every rank gets the whole mean
//   ExchangeShares   ranks sum ranges; each rank gets its share of the mean
//   ExchangeInStep   nothing is sent; the step of each rank reads all ranks' gradients and averages its share
//   Joined           wraps an exchange, so that ranks whose data has ended take part in it
//
// A round is begin(), then take() and ready() for each gradient, then finish(), or abandon() after a backward that
// failed. Rounds do not overlap, and all ranks make the same rounds in the same order.
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
  bool compares_weights = true;  // the first bucket carries a sample of this rank's weights
};

// Ranks that have data. Under a Join (reigen/parallel/join.h) ranks may have different numbers of batches, so the data
// of some ranks ends earlier.
struct Participants {
  int first = 0;                    // the lowest of these ranks
  BufferSync::Contributors newest;  // the ranks whose buffers are the newest
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // ---- Before a forward

  // Call it before a forward after which all ranks run backward, if buffers are about to be synchronised. Afterwards
  // participants() says which ranks have data, and which have the newest buffers. May wait.
  virtual void announce_forward(const std::string&) {}
  virtual Participants participants() const = 0;
  // Called before every forward. It does not matter whether the backward after it averages gradients or only adds them
  // up.
  virtual void begin_forward() {}

  // ---- Called from hooks: must not wait (base/no_waiting.h)

  // Whether before_gradient() is to be called.
  virtual bool looks_ahead() const { return false; }
  // A gradient of the parameter is about to be added to `.grad`.
  virtual void before_gradient(std::size_t) {}
  // `.grad` of the parameter is complete. The exchange moves the gradient to where it needs it.
  virtual void take(std::size_t parameter) = 0;
  virtual void begin(const Round& round) = 0;
  // Called once in a round for each parameter, after take() of its gradient. Starts the buckets that are complete.
  virtual void ready(std::size_t parameter) = 0;

  // ---- Called where backward enters a unit (unit_watch.h)

  // Whether a bucket is to be started now, because backward is done with its unit.
  virtual bool is_due() const { return false; }
  // Starts the buckets that are due, and waits until there is memory for the gradients of the unit.
  virtual void enter_unit() {}

  // ---- After backward

  // Waits for the round's calls. Afterwards, for every parameter that has a gradient on some rank, `.grad` is the mean,
  // or a mark that stands for the mean (tensor/flat/gradient_share.h). `first`: the lowest rank that has data.
  virtual void finish(int first) = 0;
  // Waits for the calls that were started. Each of these calls ends: either the other ranks have started it too, or it
  // fails.
  virtual void abandon() = 0;
  // A backward has ended, or was given up.
  virtual void end_backward() {}

  // ---- Queries

  // Whether some call was started for whose end finish() or abandon() has not waited yet.
  virtual bool is_under_way() const = 0;
  virtual std::uint64_t bytes_given() const = 0;
  virtual std::size_t bucket_count() const { return 0; }
  virtual const std::vector<BucketTimes>& bucket_times() const = 0;  // of the last round, or of the current one
  // How many memory blocks were allocated so far for gradients that are sent.
  virtual std::int64_t allocations() const { return 0; }
  // How long this rank has waited so far in the backward of this round.
  virtual std::chrono::duration<double> waited_in_backward() const { return {}; }
};

}  // namespace reigen::parallel
