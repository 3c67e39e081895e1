// Each rank gets only its share of the mean. Gradients are summed range by range (a range is a flat buffer with several
// parameters), each range as soon as its gradients are complete.
//
//   gradients[share of this rank] = mean over all ranks of backward's gradients; if a parameter has a gradient from
//                                   before, the mean is added to it
//
// A range's gradients have memory from the moment when backward makes the first of them until their sum has arrived.
// Here this memory is called a room. When backward enters a unit, this rank waits for the sums of the units that
// backward is done with. Over a network, and on a GPU, it does not wait for the sum that was started last. So with
// units of equal size there are at most two rooms. Without units this rank does not wait before the end of backward, so
// every range may have a room.
//
// If weights are gathered and freed unit by unit, the sum of a range starts when backward is done with the range's
// unit, even if some of the range's gradients are missing. Backward reaches this point on all ranks alike, so all ranks
// start sums and gathers in the same order. If weights are not gathered, the hook of the range's last gradient may
// start the sum too.
//
// After the round `.grad` is a mark: a placeholder tensor that stands for the mean (tensor/flat/gradient_share.h).
//
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/check/weight_sample.h"
#include "parallel/exchange/block_pool.h"
#include "parallel/exchange/bucket_queue.h"
#include "parallel/exchange/exchange.h"
#include "parallel/exchange/gradient_flags.h"
#include "parallel/trained_parameters.h"
#include "parallel/watch/unit_watch.h"
#include "reigen/comm/communicator.h"

namespace reigen::parallel {

struct ShareOptions {
  std::shared_ptr<UnitWatch> units = {};    // null if there are no units
  std::vector<std::size_t> unit_of = {};    // unit of each range; units->size() stands for "no unit"
  bool starts_in_hooks = true;              // whether the hook of a range's last gradient may start the range's sum
  bool overlap = true;                      // if false, all sums start after backward
  std::optional<at::ScalarType> type = {};  // the type in which fp32 gradients are sent; nullopt means fp32
};

class ExchangeShares final : public Exchange {
 public:
  // `sharers`: the ranks between which gradients are divided. `replicas`: the ranks that hold the same share as this
  // rank. `replicas` may be this rank alone.
  ExchangeShares(Communicator world, Communicator sharers, Communicator replicas, TrainedParameters trained,
                 std::optional<WeightSample> sample, ShareOptions options);

  Participants participants() const override { return {.newest = {.ranks = world_.size()}}; }
  void begin_forward() override;
  bool looks_ahead() const override { return true; }
  void before_gradient(std::size_t parameter) override;
  void take(std::size_t parameter) override;
  void begin(const Round& round) override;
  void ready(std::size_t parameter) override;
  bool is_due() const override;
  void enter_unit() override;
  void finish(int first) override;
  void abandon() override { end_started(); }
  void end_backward() override { queue_.rewind(); }
  bool is_under_way() const override { return queue_.any_is_started(); }
  std::uint64_t bytes_given() const override { return bytes_; }
  std::size_t bucket_count() const override { return queue_.size(); }
  const std::vector<BucketTimes>& bucket_times() const override { return queue_.times(); }
  std::int64_t allocations() const override { return rooms_.allocations(); }
  std::chrono::duration<double> waited_in_backward() const override { return waited_; }

 private:
  struct Gradient {     // one per parameter
    bool adds = false;  // the mean of its next gradient is added to the share from earlier backwards
    bool has = false;   // this rank had a gradient in the last round
  };
  struct Sum {  // one per bucket
    std::size_t range = 0;
    Work work = {};
    at::Tensor rounded = {};       // the rounded gradients that are sent; undefined if they are sent unrounded
    at::Tensor arrived = {};       // this rank's share of the mean; undefined if it is received in gradients()
    std::vector<char> added = {};  // by segment: whether the mean is added to the share from earlier backwards
  };

  void cut(const std::vector<std::size_t>& order);
  void make_room(std::size_t range);
  void start_next();
  void start(std::size_t bucket);
  void collect(std::size_t bucket);
  void collect_completed();
  void add_arrived(Sum& sum);
  void end_started();

  Communicator world_;
  Communicator sharers_;
  Communicator replicas_;
  TrainedParameters trained_;
  ShareOptions options_;
  BucketQueue queue_;  // one bucket per range
  std::vector<Gradient> gradients_;
  std::vector<Sum> sums_;
  std::size_t collected_ = 0;  // how many buckets of this round have given back the memory of their gradients
  BlockPool rooms_;            // the memory of ranges' gradients
  GradientFlags flags_;
  std::uint64_t bytes_ = 0;
  std::chrono::duration<double> waited_{0};
};

}  // namespace reigen::parallel
