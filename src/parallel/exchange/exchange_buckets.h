// A strategy exchanges buckets of gradients between the ranks while backward runs.
//
// Every parameter has a slot in its range's gradient buffer, followed by a spare element: the flag that says "this rank
// has a gradient here". take() moves a gradient into its slot. When the last gradient of a bucket is ready, the
// exchange gives the bucket to the strategy. The strategy combines it with the same bucket of the other ranks, and
// sends the flags with it if it can. Gradients that are missing at the end of backward are filled with zeros.
//
// The host does not read or write the memory of a GPU, so there the flags are sent in a call of their own, on memory of
// the host. A rank that has all gradients does not wait for this call.
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
  bool overlap = true;  // false: one bucket of each type, after backward
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
  std::optional<GradientFlags> flags_;  // not set: the buckets carry the flags
  std::vector<GradientBucket> given_;   // one per bucket
};

}  // namespace reigen::parallel
