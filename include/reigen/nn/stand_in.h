// Marks a sample as a stand-in. A rank without a sample of its own computes with a stand-in, so that all ranks make the
// same calls. The batch of such a rank has weight 0 (reigen::data::Batch). Batch statistics must not count a stand-in.
//
//   std::optional<reigen::nn::StandIn> stand_in;
//   if (batch.count == 0) stand_in.emplace();  // around forward and backward
//
// Thread rule: a guard acts on the thread that creates it; guards nest.
#pragma once

namespace reigen::nn {

// While a StandIn lives, SyncBatchNorm (sync_batch_norm.h) leaves the input of this thread out of its statistics.
class StandIn {
 public:
  StandIn();
  ~StandIn();
  StandIn(const StandIn&) = delete;  // it ends with its scope
  StandIn& operator=(const StandIn&) = delete;
};

}  // namespace reigen::nn
