// For uneven inputs: ranks that run out of data keep taking part in the other ranks' calls, so that no rank waits for
// ever and no sample is left out.
//
//   reigen::Join join(parallel, {});
//   for (const auto& batch : mine) {          // as many as this rank has, also none
//     optimizer.zero_grad();
//     loss_of(parallel(batch)).backward();
//     optimizer.step();
//   }
//   join.finish([&] { optimizer.step(); });   // returns when every rank is here
//
// While a rank waits in finish(), it adds zero gradients, and the buffers that count are those of the ranks that still
// train. It receives the averaged gradients too. If finish() is given the step, this rank makes every step that the
// others make, so weights and optimizer state are the same on all ranks at every moment. Without the step, weights and
// buffers are copied at the end from a rank that made the last step, and this rank's optimizer state stays as it was
// when its data ended. Then only an optimizer without state may go on with a next epoch: with any other, the weights
// would differ between ranks from its first step on. Gradients that were only added up (no_sync) when a rank calls
// finish() are dropped; call parallel.synchronize() before it to make them count. After finish() no parameter has a
// gradient, on any rank.
//
//   .grad = sum over the ranks that train / N     N: all ranks (kAllRanks), or those that train (kTrainingRanks)
//
// Ranks that have data must still make the same forwards in training mode and the same backwards, in one order. Ranks
// in finish() answer only these. So under a Join a loop must not make collective calls of its own with ranks that may
// have ended (to average a loss, say), must not call settle(), and must not go on after an exception from backward.
// The parts that a strategy kept back (error feedback) are still sent by ranks that have ended. adasum() of gradients
// does not divide by N.
// Cost: one all_gather of a byte before every reduction, and before every forward that synchronises buffers. Before a
// forward it blocks. In backward it runs alongside, and buckets travel only after it has ended; so a collective of
// your own within backward needs a communicator of its own (split). At the end there is a broadcast of weights and
// buffers.
//
// Errors: InvalidArgument where the strategy acts on weights (local SGD and its kin: every rank has to make every step
// itself), where ranks share weights (Shard), for a model with SyncBatchNorm, for kTrainingRanks with adasum() of
// gradients, when another Join of the wrapper lives, and when finish() is called twice. CollectiveMismatch on every
// rank when ranks with data do different things. EarlyEnd if JoinOptions ask for it. A Join that is destroyed before
// finish(), as by an exception, answers no call: the other ranks get the error for a rank that left.
// Thread rule: as data_parallel().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reigen/base/error.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::parallel {

enum class DivideBy {
  kAllRanks,       // every sample weighs the same; the last steps, made of fewer ranks' samples, are smaller
  kTrainingRanks,  // the mean over the ranks that have data: steps keep their size, the last samples weigh more
};

struct JoinOptions {
  DivideBy divide_by = DivideBy::kAllRanks;
  // True: no rank trains on alone. As soon as one rank has called finish() and another begins a step, all throw
  // EarlyEnd.
  bool throw_on_early_end = false;
};

// Thrown when some rank has no more data and JoinOptions::throw_on_early_end is set; by every rank at the same step.
struct EarlyEnd : Error {
  explicit EarlyEnd(const Report& report) : Error(ExitCode::kStopped, report) {}
};

class Join {
 public:
  // Every rank makes a Join, between two steps. Making it does not communicate. `parallel` must outlive it.
  explicit Join(DataParallelBase& parallel, const JoinOptions& options = {});
  Join(const Join&) = delete;  // a rank ends once
  Join& operator=(const Join&) = delete;
  ~Join();

  // Says that this rank has no more data. Blocks until every rank has said so; until then `step` runs after each
  // reduction.
  void finish(const std::function<void()>& step = {});

 private:
  std::shared_ptr<GradientReducer> reducer_;
  bool finished_ = false;
};

}  // namespace reigen::parallel

namespace reigen {
using parallel::Join;
using parallel::JoinOptions;
}  // namespace reigen
