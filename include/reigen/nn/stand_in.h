// Marks the samples of a batch as stand-ins. A rank without samples computes with a stand-in sample, so that all ranks
// make the same calls. The batch of such a rank has weight 0 (Batch::weight in reigen/data/loader.h). Batch statistics
// must not count a stand-in.
//
//   std::optional<reigen::nn::StandIn> stand_in;
//   if (batch.count == 0) stand_in.emplace();  // around forward and backward
//
// Thread rule: a StandIn acts on the thread that creates it. StandIn objects may nest.
#pragma once

namespace reigen::nn {

// While a StandIn lives, SyncBatchNorm (sync_batch_norm.h) leaves the input of this thread out of its statistics.
class StandIn {
 public:
  StandIn();
  ~StandIn();
  StandIn(const StandIn&) = delete;  // an object belongs to one scope
  StandIn& operator=(const StandIn&) = delete;
};

}  // namespace reigen::nn
