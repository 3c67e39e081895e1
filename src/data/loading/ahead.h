// Makes given samples in advance on threads, for an evaluation.
// Thread rule: one thread calls next() and the destructor.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/loading/prefetcher.h"
#include "data/loading/samples_in_making.h"
#include "reigen/data/dataset.h"

namespace reigen::data {

struct AheadOptions {
  Workers workers = {};
  int prefetch = 2;
};

class Ahead {
 public:
  using IndicesOf = std::function<std::vector<std::int64_t>(std::int64_t call)>;

  // Call 0, 1, ..., calls-1 of next() returns the samples of gather(indices_of(call)), without damaged ones.
  Ahead(const Dataset& data, std::int64_t calls, IndicesOf indices_of, const Damage& damage,
        const AheadOptions& options);

  // Batch::indices names the samples. If there are none, the batch has no tensors. Rethrows the errors of the dataset.
  Batch next();
  int workers() const { return prefetcher_.workers(); }  // threads that make samples now

 private:
  Prefetcher prefetcher_;
};

}  // namespace reigen::data
