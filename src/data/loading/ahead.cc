#include "data/loading/ahead.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"

namespace reigen::data {

namespace {

class InMaking : public BatchInMaking {
 public:
  InMaking(const Dataset& data, const std::vector<std::int64_t>& indices, const Damage& damage)
      : is_empty_(indices.empty()),
        samples_(data, false, {.indices = is_empty_ ? std::vector<std::int64_t>{0} : indices}, damage) {}

  std::size_t units() const override { return is_empty_ ? 1 : samples_.units(); }
  void make(std::size_t unit) override {
    if (!is_empty_) samples_.make(unit);
  }
  Batch finish() override {
    Batch batch;
    if (is_empty_) return batch;
    batch.indices = samples_.kept();
    batch.count = static_cast<std::int64_t>(batch.indices.size());
    if (batch.count > 0) static_cast<Samples&>(batch) = samples_.finish();
    return batch;
  }

 private:
  bool is_empty_;
  SamplesInMaking samples_;
};

}  // namespace

Ahead::Ahead(const Dataset& data, std::int64_t calls, IndicesOf indices_of, const Damage& damage,
             const AheadOptions& options)
    : prefetcher_(
          calls, options.workers, options.prefetch,
          [&data, damage, indices_of = std::move(indices_of)](std::int64_t call) {
            return std::make_unique<InMaking>(data, indices_of(call), damage);
          },
          std::make_shared<WorkerNeed>(options.workers.most)) {}

Batch Ahead::next() {
  std::optional<Batch> batch = prefetcher_.next();
  REIGEN_ASSERT(batch.has_value(), "next() of an evaluation was called after its last batch");
  return std::move(*batch);
}

}  // namespace reigen::data
