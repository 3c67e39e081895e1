// Join is for ranks with different numbers of batches. A rank whose data has ended still takes part in the calls of the
// other ranks. So no rank waits for ever, and no sample is left out.
//
//   reigen::Join join(parallel, {});
//   for (const auto& batch : mine) {          // any number of batches, even none
//     optimizer.zero_grad();
//     loss_of(parallel(batch)).backward();
//     optimizer.step();
//   }
//   join.finish([&] { optimizer.step(); });   // returns when every rank has called finish()
//
// A rank in finish() contributes zero gradients to each average, and receives the averaged gradients. Its buffers do
// not count: only the ranks that still train decide the buffers of all ranks. At the end of finish() all ranks get the
// weights of a rank that made the last step. They also get the buffers of such ranks, as DataParallelOptions::buffers
// says. If finish() gets the optimizer's step as its argument, a rank in finish() also makes every step of the other
// ranks. So weights and optimizer state are the same on all ranks after every step. Without this argument, the rank's
// optimizer state remains as it was when its data ended. Then only an optimizer without state may train another epoch.
// With any other optimizer, the weights would differ between ranks after the first step of that epoch. If a rank has
// gradients that were only added up (no_sync()), finish() drops them. To make them count, call parallel.synchronize()
// before finish(). After finish() no parameter has a gradient, on any rank.
//
//   .grad = 1/N · sum over training ranks     N: number of all ranks (kAllRanks) or of training ranks (kTrainingRanks)
//
// Ranks that have data must still make the same forwards in training mode and the same backwards, in the same order.
// Ranks in finish() take part only in the calls of these forwards and backwards. So while a Join lives, a training loop
// must not make collective calls of its own (for example to average a loss) in a group with ranks that may be in
// finish(). The loop must also not call settle(), and must not continue after an exception from backward. With a
// strategy with error feedback, a rank in finish() still sends the parts of its earlier gradients that it has not sent
// yet. adasum() of gradients does not divide by N.
// Cost: one all_gather of a byte from each rank before every average of gradients, and before every forward that
// synchronises buffers. Before a forward the all_gather blocks. In backward it is asynchronous, and buckets are sent
// only after it has ended. The time of its end differs between ranks, so the order of bucket calls and of your own
// calls within backward may differ too. Therefore use a communicator of its own (split()) for your own calls within
// backward. finish() ends with a broadcast of weights and buffers.
//
// Errors: the constructor throws InvalidArgument with a strategy that acts on weights, because every rank must make
// every step of such a strategy itself. It also throws InvalidArgument with a Shard other than kNone; with a model that
// has SyncBatchNorm; with kTrainingRanks and adasum() of gradients; and when another Join of `parallel` lives. finish()
// throws InvalidArgument when it is called twice. When ranks with data make different calls, every rank throws
// CollectiveMismatch. If JoinOptions::throw_on_early_end is set, every rank may throw EarlyEnd. If a Join is destroyed
// before finish(), for example by an exception, this rank takes part in no further call of the Join. The other ranks
// then get the error that Communicator throws for a rank that left.
// Thread rule: only the thread that runs backward may use a Join.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reigen/base/error.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::parallel {

enum class DivideBy {
  // Every sample has the same weight. The last steps have fewer samples, so they change the weights less.
  kAllRanks,
  // Gradients are averaged over the ranks that still have data. All steps change the weights equally much, but the
  // samples of the last steps have more weight.
  kTrainingRanks,
};

struct JoinOptions {
  DivideBy divide_by = DivideBy::kAllRanks;
  // True: training ends when the data of the first rank ends. When one rank has called finish() and another rank begins
  // a step, all ranks throw EarlyEnd.
  bool throw_on_early_end = false;
};

// If JoinOptions::throw_on_early_end is set and the data of some rank has ended, every rank throws EarlyEnd at the same
// step.
struct EarlyEnd : Error {
  explicit EarlyEnd(const Report& report) : Error(ExitCode::kStopped, report) {}
};

class Join {
 public:
  // Every rank creates a Join, between two steps. The constructor does not communicate. `parallel` must outlive the
  // Join.
  explicit Join(DataParallelBase& parallel, const JoinOptions& options = {});
  Join(const Join&) = delete;  // a rank calls finish() once
  Join& operator=(const Join&) = delete;
  ~Join();

  // Call it when this rank has no more data. Blocks until every rank has called finish(). Meanwhile this rank runs
  // `step` after each average of gradients.
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
