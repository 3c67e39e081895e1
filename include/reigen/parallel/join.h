// For uneven inputs: a rank without more data still takes part in the calls of the other ranks. So no rank waits for
// ever and no sample is left out.
//
//   reigen::Join join(parallel, {});
//   for (const auto& batch : mine) {          // any number of batches, even none
//     optimizer.zero_grad();
//     loss_of(parallel(batch)).backward();
//     optimizer.step();
//   }
//   join.finish([&] { optimizer.step(); });   // returns when every rank is here
//
// While a rank waits in finish(), it contributes zero gradients, and only the buffers of the ranks that still train
// count. It receives the averaged gradients too. If finish() gets the optimizer's step as argument, this rank makes
// every step of the other ranks, so weights and optimizer state are the same on all ranks at every moment. Without the
// argument, weights and buffers are copied at the end from a rank that made the last step, and this rank's optimizer
// state remains as it was when its data ended. Then only an optimizer without state may continue with another epoch:
// with any other optimizer, the weights would differ between ranks after the first step of that epoch. Gradients that
// were only added up (no_sync) when a rank calls finish() are dropped; call parallel.synchronize() before finish() to
// make them count. After finish() no parameter has a gradient, on any rank.
//
//   .grad = 1/N · sum over training ranks     N: number of all ranks (kAllRanks) or of training ranks (kTrainingRanks)
//
// Ranks that have data must still make the same forwards in training mode and the same backwards, in the same order.
// Ranks in finish() take part only in the calls of these forwards and backwards. So under a Join a loop must not make
// collective calls of its own with ranks that may be in finish() (for example to average a loss), must not call
// settle(), and must not continue after an exception from backward. Ranks in finish() still send the parts of earlier
// gradients that their strategy could not send at that time (error feedback). adasum() of gradients does not divide by
// N.
// Cost: one all_gather of a byte before gradients are averaged, and before every forward that synchronises buffers.
// Before a forward the all_gather blocks. In backward it is asynchronous, and buckets are sent only after it has ended;
// so a collective of your own within backward needs a communicator of its own (split). At the end there is a broadcast
// of weights and buffers.
//
// Errors: InvalidArgument with a strategy that acts on weights (in local SGD and similar strategies every rank has to
// make every step itself); with a Shard other than kNone; with a model that has SyncBatchNorm; with kTrainingRanks and
// adasum() of gradients; when another Join of the same wrapper lives; and when finish() is called twice.
// CollectiveMismatch on every rank when ranks with data make different calls. EarlyEnd if
// JoinOptions::throw_on_early_end is set. If a Join is destroyed before finish(), for example by an exception, this
// rank takes part in no further call, and the other ranks get the error for a rank that left.
// Thread rule: as data_parallel().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reigen/base/error.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::parallel {

enum class DivideBy {
  kAllRanks,       // every sample has the same weight; the last steps have samples of fewer ranks and are smaller
  kTrainingRanks,  // the mean over the ranks that have data: steps keep their size, the last samples have more weight
};

struct JoinOptions {
  DivideBy divide_by = DivideBy::kAllRanks;
  // True: training ends at the first rank without data. When one rank has called finish() and another begins a step,
  // all ranks throw EarlyEnd.
  bool throw_on_early_end = false;
};

// Every rank throws it at the same step when some rank has no more data and JoinOptions::throw_on_early_end is set.
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

  // Announces that this rank has no more data. Blocks until every rank has called finish(); until then `step` runs
  // after each averaging of gradients.
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
