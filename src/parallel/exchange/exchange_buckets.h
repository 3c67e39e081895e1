// The exchange in which a GradientStrategy (reigen/parallel/strategy.h) combines buckets of gradients between the ranks
// while backward runs.
//
// Every parameter has a slot for its gradient in the gradient buffer of its flat range. The spare element after the
// slot is a flag that says whether this rank has a gradient of the parameter. take() moves a gradient into its slot.
// When the last gradient of a bucket is ready, the exchange gives the bucket to the strategy. The strategy combines the
// bucket with the same bucket of the other ranks, and sends the flags with it if it can (keeps_zeros()). If a gradient
// is missing at the end of backward, its slot is filled with zeros.
//
// The host writes and reads the flags, and it does not access the memory of a GPU. So flags of gradients on a GPU are
// sent in a call of their own, on memory of the host (gradient_flags.h). If the strategy cannot send the flags, they
// are sent in the same way.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/check/weight_sample.h"
#include "parallel/exchange/bucket_queue.h"
#include "parallel/exchange/exchange.h"
#include "parallel/exchange/gradient_flags.h"
#include "parallel/trained_parameters.h"
#include "reigen/comm/communicator.h"
#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

struct BucketOptions {
  double megabytes = 25;
  bool overlap = true;  // if false, each flat range is one bucket, which is sent after backward
};

class ExchangeBuckets final : public Exchange {
 public:
  // The strategy outlives the exchange.
  ExchangeBuckets(Communicator world, TrainedParameters trained, GradientStrategy& strategy,
                  std::optional<WeightSample> sample, const BucketOptions& options);

  Participants participants() const override { return {.newest = {.ranks = world_.size()}}; }
  void take(std::size_t parameter) override;
  void begin(const Round& round) override { queue_.begin(round); }
  void ready(std::size_t parameter) override;
  void finish(int first) override;
  void abandon() override { end_started(); }
  bool is_under_way() const override { return queue_.any_is_started(); }
  std::uint64_t bytes_given() const override { return strategy_.bytes_given(); }
  std::size_t bucket_count() const override { return queue_.size(); }
  const std::vector<BucketTimes>& bucket_times() const override { return queue_.times(); }

 private:
  void cut(const std::vector<std::size_t>& order);
  void start_next();
  void end_started();
  void fill(std::size_t parameter);
  char* flag_of(std::size_t parameter) const;
  void settle_flags();
  void settle_sent_flags();

  Communicator world_;
  TrainedParameters trained_;
  GradientStrategy& strategy_;
  BucketOptions options_;
  BucketQueue queue_;
  std::optional<GradientFlags> flags_;  // not set if the flags are sent with the buckets
  std::vector<GradientBucket> given_;   // the buckets in the form that the strategy gets
};

}  // namespace reigen::parallel
