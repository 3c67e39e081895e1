// Marks a sample as a stand-in. A rank without a sample of its own computes with a stand-in, so that all ranks make
// the same calls (reigen::data::Batch with weight 0). Statistics of a batch must not count it.
//
//   std::optional<reigen::nn::StandIn> stand_in;
//   if (batch.count == 0) stand_in.emplace();  // around forward and backward
//
// Thread rule: a guard counts for the thread that makes it; guards nest.
#pragma once

namespace reigen::nn {

// While a StandIn lives, input that this thread puts through SyncBatchNorm (sync_batch_norm.h) counts in no
// statistics.
class StandIn {
 public:
  StandIn();
  ~StandIn();
  StandIn(const StandIn&) = delete;  // it ends with its scope
  StandIn& operator=(const StandIn&) = delete;
};

}  // namespace reigen::nn
