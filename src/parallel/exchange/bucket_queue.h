// Buckets of gradients, which start in their order, so that all ranks start the same calls in the same order whatever
// the order in which gradients come. The first backward tells the order in which they come: who owns the queue then
// cuts buckets once more, on all ranks as the gradients of one came.
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
    std::uint64_t bytes = 0;  // of its gradients
    std::string first = {};   // names of the parameters in memory
    std::string last = {};
    std::string label = {};   // "step 7 bucket 0"
    std::string tag = {};     // the label and what ranks compare of their weights
    std::size_t pending = 0;  // parameters whose gradients have not come
    bool is_started = false;  // and not ended
  };

  // `sample`: what the first bucket of a round tells of the weights; none: nothing.
  BucketQueue(Communicator world, std::size_t parameters, std::optional<WeightSample> sample);

  void set(std::vector<Bucket> buckets);
  void begin(const Round& round);

  // Between two rounds: the first bucket is the next.
  void rewind() { next_ = 0; }

  // The parameter's gradient has come. Once in a round.
  void complete(std::size_t parameter);
  std::size_t size() const { return buckets_.size(); }
  const Bucket& operator[](std::size_t i) const { return buckets_[i]; }
  const Bucket& of(std::size_t parameter) const { return buckets_[bucket_of_[parameter]]; }
  // Throws InvalidArgument where the bucket of the parameter was started: a gradient more came too late.
  void require_not_started(std::size_t parameter, const std::string& name) const;

  // The one to be started next; size(): none is left.
  std::size_t next() const { return next_; }
  bool next_is_complete() const { return next_ < buckets_.size() && buckets_[next_].pending == 0; }
  // Starts it: body(its number) starts the calls. An error of ranks whose weights differ says so.
  void start_next(const std::function<void(std::size_t)>& body);
  // body() waits for what was started; nothing where it was not, or has ended. An error names its parameters.
  void end(std::size_t bucket, const std::function<void()>& body);
  bool any_is_started() const;
  // What is under way moves on, without waiting.
  void poll();

  // Once, after the first round of two or more buckets: all parameters as the gradients came on rank `first`, then
  // those that never came. None: not this time. Collective.
  std::optional<std::vector<std::size_t>> order_as_they_came(int first);

  // flags[i] = the largest of all ranks' flags[i], which say of each parameter whether it has a gradient. Collective.
  std::vector<char> on_any_rank(std::vector<char> flags);

  const std::vector<BucketTimes>& times() const { return times_; }

 private:
  std::string tag(const std::string& what) const;
  void name_difference(const std::function<void()>& body) const;

  Communicator world_;
  std::optional<WeightSample> sample_;
  Round round_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::size_t next_ = 0;
  std::vector<std::size_t> arrival_;  // parameters as their gradients came in this round
  bool was_ordered_ = false;
  std::vector<BucketTimes> times_;
};

}  // namespace reigen::parallel
