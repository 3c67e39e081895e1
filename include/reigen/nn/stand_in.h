// A sample that only stands in: a rank without a sample of its own computes with it, so that all ranks make the same
// calls (reigen::data::Batch with weight 0). Statistics of a batch must not count it.
//
//   std::optional<reigen::nn::StandIn> stand_in;
//   if (batch.count == 0) stand_in.emplace();  // around forward and backward
//
// Thread rule: for the thread that makes it; they nest.
#pragma once

namespace reigen::nn {

// While one lives, what this thread puts through SyncBatchNorm (sync_batch_norm.h) counts in no statistics.
class StandIn {
 public:
  StandIn();
  ~StandIn();
  StandIn(const StandIn&) = delete;  // ends with its scope
  StandIn& operator=(const StandIn&) = delete;
};

}  // namespace reigen::nn
