// A queue of buckets of gradients. A bucket starts when the call that sends its gradients starts. Buckets start in the
// queue's order, so all ranks start the same calls in the same order, even if their gradients become ready in different
// orders. The first backward shows in which order gradients become ready. After it, the owner of the queue divides the
// parameters into new buckets. For this all ranks use the order that one of them has seen. A round averages each
// gradient once: each bucket starts and ends once.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/check/weight_sample.h"
#include "parallel/exchange/exchange.h"
#include "parallel/trained_parameters.h"
#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class BucketQueue {
 public:
  struct Bucket {
    std::vector<std::size_t> parameters = {};
    std::uint64_t bytes = 0;  // size of its gradients
    std::string first = {};   // name of the bucket's first parameter in memory
    std::string last = {};    // name of the bucket's last parameter in memory
    std::string label = {};   // "step 7 bucket 0"
    std::string tag = {};     // the label; in the first bucket also a hash of weights (weight_sample.h)
    std::size_t pending = 0;  // number of parameters whose gradients are not ready
    bool is_started = false;  // started, and not ended
  };

  // `parameters`: the number of parameters. `sample`: computes a hash of some weights. The hash is part of the tag of a
  // round's first bucket. Ranks compare tags, so they compare the hash. If `sample` is nullopt, ranks do not compare
  // weights.
  BucketQueue(Communicator world, std::size_t parameters, std::optional<WeightSample> sample);

  void set(std::vector<Bucket> buckets);
  void begin(const Round& round);

  // Makes the first bucket the one that start_next() starts next. Call it between two rounds.
  void rewind() { next_ = 0; }

  // Notes that the parameter's gradient is ready. Call it once for each parameter in a round.
  void complete(std::size_t parameter);
  std::size_t size() const { return buckets_.size(); }
  const Bucket& operator[](std::size_t i) const { return buckets_[i]; }
  const Bucket& of(std::size_t parameter) const { return buckets_[bucket_of_[parameter]]; }
  // Throws InvalidArgument if the parameter's bucket was started already. A further gradient of the parameter is then
  // too late.
  void require_not_started(std::size_t parameter, const std::string& name) const;

  // The number of the bucket that starts next, or size() if none is left.
  std::size_t next() const { return next_; }
  bool next_is_complete() const { return next_ < buckets_.size() && buckets_[next_].pending == 0; }
  // Starts the next bucket: `body` gets the bucket's number and starts its calls. If a call fails because weights
  // differ between ranks, the error says so.
  void start_next(const std::function<void(std::size_t)>& body);
  // Ends a bucket: `body` waits for the bucket's calls. Does nothing if the bucket was not started or has ended. If a
  // call fails, the error names the bucket's parameters.
  void end(std::size_t bucket, const std::function<void()>& body);
  bool any_is_started() const;
  // Lets the calls in flight make progress, without waiting.
  void poll();

  // Call it at the end of a round. Returns the parameters in the order in which their gradients became ready on rank
  // `first` in this round, then the parameters whose gradients did not become ready. It returns an order only once. In
  // later rounds, with fewer than two buckets, or if no gradient became ready on rank `first`, it returns nullopt.
  // Collective.
  std::optional<std::vector<std::size_t>> order_as_they_came(int first);

  // flags[i]: whether parameter i has a gradient on this rank (0 or 1). Starts a call that replaces each flag by its
  // maximum over all ranks. `flags` has one entry for each parameter, and must remain valid until the call is complete.
  Work start_on_any_rank(char* flags, comm::Progress progress);

  const std::vector<BucketTimes>& times() const { return times_; }

 private:
  std::string tag(const std::string& what) const;
  void name_difference(const std::function<void()>& body) const;

  Communicator world_;
  std::optional<WeightSample> sample_;
  Round round_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // the bucket of each parameter
  std::size_t next_ = 0;
  std::vector<std::size_t> arrival_;  // parameters in the order in which their gradients became ready in this round
  bool was_ordered_ = false;
  std::vector<BucketTimes> times_;
};

}  // namespace reigen::parallel
