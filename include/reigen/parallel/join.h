// Uneven inputs: ranks that run out of data keep answering the others, so that nobody waits for ever and no sample is
// left out.
//
//   reigen::Join join(parallel, {});
//   for (const auto& batch : mine) {          // as many as this rank has, also none
//     optimizer.zero_grad();
//     loss_of(parallel(batch)).backward();
//     optimizer.step();
//   }
//   join.finish([&] { optimizer.step(); });   // returns when every rank is here
//
// While a rank waits in finish(), the gradients it adds are zero and the buffers are those of the ranks that still
// train. The averaged gradients arrive there as well: with the step given, it makes every step that the others make,
// and weights and the optimizer's state are the same on all ranks at every moment. Without it the weights and buffers
// come at the end from a rank that made the last step, and the optimizer's state remains as old as this rank's data.
// Gradients that were only added up (no_sync) when a rank calls finish() are dropped: call parallel.synchronize()
// before it to have them count. Behind finish() no parameter has a gradient, on any rank. Without the step only an
// optimizer without state may go on with a next epoch: weights would differ between ranks from its first step on.
//
//   .grad = sum over the ranks that train / N     N: DivideBy::kAllRanks: all; kTrainingRanks: those that train
//
// What ranks with data do must still be the same on each: forwards in training mode and backwards, in one order. Only
// these are answered: no collectives of your own with ranks that may have ended, as for a loss, no settle(), and no
// exception that backward throws and the loop survives. What strategies keep back (error feedback) still comes from
// ranks that have ended; adasum() of gradients does not divide.
// Cost: one all_gather of a byte before every reduction and every forward that brings buffers together. Before a
// forward it blocks; in backward it runs beside it, and buckets travel after it has ended, so a collective of your own
// within backward needs a communicator of its own (split). At the end a broadcast of weights and buffers.
//
// Errors: InvalidArgument where the strategy acts on weights (local SGD and its kin: every rank has to make every step
// itself), for a model with SyncBatchNorm, for kTrainingRanks with adasum() of gradients, when a Join lives already, or
// finish() is called twice; CollectiveMismatch on every rank when ranks with data do different things; EarlyEnd. A Join
// destroyed before finish(), as by an exception, answers nobody: the others get the error of a rank that left. Thread
// rule: as data_parallel().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reigen/base/error.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::parallel {

enum class DivideBy {
  kAllRanks,       // every sample weighs the same, and the last steps, of fewer, are smaller
  kTrainingRanks,  // the mean over the ranks that have data: steps keep their size, the last samples weigh more
};

struct JoinOptions {
  DivideBy divide_by = DivideBy::kAllRanks;
  // True: nobody trains on alone. As soon as one rank has called finish() and another begins a step, all get EarlyEnd.
  bool throw_on_early_end = false;
};

// Some ranks have no more data, and JoinOptions say that training ends then. Every rank gets it at the same step.
struct EarlyEnd : Error {
  explicit EarlyEnd(const Report& report) : Error(ExitCode::kStopped, report) {}
};

class Join {
 public:
  // Every rank makes one, between two steps. No communication. `parallel` must outlive it.
  explicit Join(DataParallelBase& parallel, const JoinOptions& options = {});
  Join(const Join&) = delete;  // one rank ends once
  Join& operator=(const Join&) = delete;
  ~Join();

  // This rank has no more data. Blocks until every rank has called it; `step` runs after each reduction meanwhile.
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
