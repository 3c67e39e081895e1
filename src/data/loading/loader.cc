#include "reigen/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "data/checked.h"
#include "data/loading/device_copies.h"
#include "data/loading/global_batch.h"
#include "data/loading/prefetcher.h"
#include "data/loading/samples_in_making.h"
#include "reigen/base/error.h"
#include "reigen/data/sampler.h"

namespace reigen::data {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t global_batch_of(const LoaderOptions& options, int world_size) {
  REIGEN_CHECK(options.batch_size.has_value() != options.global_batch.has_value(),
               "set either batch_size (per rank) or global_batch (of all ranks), not {}",
               options.batch_size ? "both" : "neither");
  if (options.global_batch) {
    REIGEN_CHECK(*options.global_batch >= 1, "global_batch must be at least 1, got {}", *options.global_batch);
    return *options.global_batch;
  }
  REIGEN_CHECK(*options.batch_size >= 1, "batch_size must be at least 1, got {}", *options.batch_size);
  REIGEN_CHECK(*options.batch_size <= std::numeric_limits<std::int64_t>::max() / world_size,
               "batch_size {} on {} ranks is too large", *options.batch_size, world_size);
  return *options.batch_size * world_size;
}

SamplerOptions sampler_options(const Dataset& data, const LoaderOptions& options, int world_size) {
  REIGEN_CHECK(options.limit >= 0, "limit must be at least 1, or 0 for all samples, got {}", options.limit);
  const std::int64_t size = options.limit > 0 ? std::min(options.limit, data.size()) : data.size();
  if (size < 1) throw DataError(fmt::format("the dataset '{}' is empty", data.name()));
  return {.size = size,
          .global_batch = global_batch_of(options, world_size),
          .shuffle = options.shuffle,
          .seed = options.seed,
          .drop_last = options.drop_last};
}

}  // namespace

struct Loader::State {
  State(DatasetPtr dataset, const LoaderOptions& chosen, int own_rank, int ranks)
      : data(std::move(dataset)),
        options(chosen),
        rank(own_rank),
        world_size(ranks),
        sampler(sampler_options(*data, chosen, ranks)) {}

  // The order of the last requested epoch is kept, because computing an order costs a pass over all samples.
  std::shared_ptr<const Order> order(std::int64_t epoch) const {
    const std::lock_guard lock(mutex);
    if (!cached || cached_epoch != epoch) {
      cached = std::make_shared<const Order>(sampler.order(epoch));
      cached_epoch = epoch;
    }
    return cached;
  }

  // The positions, indices and terms of a batch; it has no tensors yet.
  Batch plan(const Order& order, std::int64_t epoch, std::int64_t start, std::int64_t step) const {
    const Range global = sampler.positions(start, step);
    const Range own = share_of(global, rank, world_size);
    Batch batch;
    batch.count = own.count();
    batch.global_count = global.count();
    batch.epoch = epoch;
    batch.step = start / sampler.options().global_batch + step;
    batch.position = global.end;
    batch.indices.reserve(static_cast<std::size_t>(batch.count));
    for (std::int64_t position = own.begin; position < own.end; ++position) batch.indices.push_back(order[position]);
    for (std::int64_t position = global.begin; position < global.end; ++position) {
      const std::int64_t terms = data->terms(order[position]);
      batch.global_terms += terms;
      if (position >= own.begin && position < own.end) batch.terms += terms;
    }
    return batch;
  }

  // Completes a batch that has its tensors.
  void complete(Batch& batch) const {
    batch.weight = static_cast<double>(batch.terms * world_size) / static_cast<double>(batch.global_terms);
    if (options.pin_memory) pin(batch);
    if (!options.device.is_cuda()) cut(batch);
  }

  static void pin(Batch& batch) {
    batch.transform(
        [](const at::Tensor& one) { return one.is_cpu() && one.layout() == at::kStrided ? one.pin_memory() : one; });
  }

  // Divides the batch into parts, the micro-batches. All ranks get the same number of parts, even a rank with fewer
  // samples, because the ranks may communicate in the forward of each part.
  void cut(Batch& batch) const {
    const std::int64_t largest_share = (batch.global_count + world_size - 1) / world_size;
    const std::int64_t parts =
        options.micro_batch > 0 ? (largest_share + options.micro_batch - 1) / options.micro_batch : 1;
    for (std::int64_t i = 0; i < parts; ++i) {
      const Range range = share_of({0, batch.count}, static_cast<int>(i), static_cast<int>(parts));
      MicroBatch part{batch};
      part.count = range.count();
      const std::int64_t shown = std::max<std::int64_t>(part.count, 1);
      const std::int64_t first = std::min(range.begin, std::max<std::int64_t>(batch.count, 1) - shown);
      if (parts > 1) part.transform([&](const at::Tensor& whole) { return whole.narrow(0, first, shown); });
      for (std::int64_t k = range.begin; k < range.end; ++k) {
        part.terms += data->terms(batch.indices[static_cast<std::size_t>(k)]);
      }
      part.weight = static_cast<double>(part.terms * world_size) / static_cast<double>(batch.global_terms);
      batch.parts.push_back(std::move(part));
    }
  }

  const DatasetPtr data;
  const LoaderOptions options;
  const int rank;
  const int world_size;
  const Sampler sampler;
  const std::optional<c10::Stream> copy_stream =
      options.device.is_cuda() ? std::optional(new_stream(options.device)) : std::nullopt;
  mutable std::atomic<std::int64_t> waited_ns{0};
  mutable std::atomic<int> workers = options.workers;  // with which the next epoch begins
  const std::shared_ptr<WorkerNeed> need = options.most_workers > 0 ? std::make_shared<WorkerNeed>(options.most_workers)
                                                                    : nullptr;
  mutable BadSamples bad;

 private:
  mutable std::mutex mutex;
  mutable std::shared_ptr<const Order> cached;
  mutable std::int64_t cached_epoch = 0;
};

// One batch of a rank.
class Loader::Making : public BatchInMaking {
 public:
  Making(const State& state, const Order& order, std::int64_t epoch, std::int64_t start, std::int64_t step)
      : state_(state),
        pass_{.seed = state.options.seed, .epoch = epoch},
        batch_(state.plan(order, epoch, start, step)),
        has_samples_(batch_.count > 0),
        stands_in_(order[batch_.position - batch_.global_count]),
        samples_(*state.data, true, rows_of(state, order), {.most = state.options.max_bad, .bad = state.bad}) {}

  std::size_t units() const override { return samples_.units(); }

  // A sample that stands in is one of another rank, which counts it if it is damaged.
  void make(std::size_t unit) override { samples_.make(unit, has_samples_); }

  Batch finish() override {
    const std::vector<std::int64_t> kept = samples_.kept();
    if (has_samples_ && kept.size() < batch_.indices.size()) {
      batch_.indices = kept;
      batch_.count = static_cast<std::int64_t>(kept.size());
      batch_.terms = 0;
      for (const std::int64_t index : kept) batch_.terms += state_.data->terms(index);
    }
    static_cast<Samples&>(batch_) = kept.empty() ? stand_in() : samples_.finish();
    state_.complete(batch_);
    return std::move(batch_);
  }

 private:
  BatchRows rows_of(const State& state, const Order& order) const {
    const std::int64_t first = batch_.position - batch_.global_count;
    const Range own = share_of({first, batch_.position}, state.rank, state.world_size);
    BatchRows rows{.pass = pass_,
                   .indices = has_samples_ ? batch_.indices : std::vector{stands_in_},
                   .begin = has_samples_ ? own.begin - first : 0,
                   .epoch_begin = first};
    for (std::size_t row = 0; row < rows.indices.size(); ++row) {
      const std::int64_t partner = partner_of(rows.begin + static_cast<std::int64_t>(row));
      rows.partners.push_back(partner < batch_.global_count ? order[first + partner] : -1);
    }
    return rows;
  }

  // The rank has no sample that it can show. A sample of weight 0 is needed, so the next one that is whole is taken.
  Samples stand_in() const {
    const std::int64_t size = state_.sampler.options().size;
    for (std::int64_t next = 1;; ++next) {
      const std::int64_t index = (stands_in_ + next) % size;
      try {
        const auto maker = state_.data->batch_in({.pass = pass_, .indices = {index}, .partners = {-1}});
        return checked(maker ? made_alone(*maker, 1) : state_.data->gather_in(pass_, std::span(&index, 1)),
                       *state_.data, 1);
      } catch (const DataError&) {
        if (next >= size) throw;
      }
    }
  }

  const State& state_;
  const Pass pass_;
  Batch batch_;
  const bool has_samples_;
  const std::int64_t stands_in_;  // the first sample of all ranks' batch
  SamplesInMaking samples_;
};

struct Epoch::Impl {
  Impl(std::shared_ptr<const Loader::State> loader, std::int64_t epoch, std::int64_t start)
      : state(std::move(loader)),
        prefetcher(
            state->sampler.steps(start),
            {.least = state->options.workers, .now = state->workers, .most = state->options.most_workers},
            state->options.prefetch,
            [own = state.get(), order = state->order(epoch), epoch, start](std::int64_t step) {
              return std::make_unique<Loader::Making>(*own, *order, epoch, start, step);
            },
            state->need) {
    if (state->copy_stream) copies.emplace(*state->copy_stream);
  }

  // Returns the next batch in memory of the GPU, and starts copies of batches that are made already. The first of them
  // is copied while the GPU computes with the returned batch.
  std::optional<Batch> next_on_device() {
    const auto wanted = static_cast<std::size_t>(state->options.device_prefetch);
    const auto add_next = [&] {
      std::optional<Batch> batch = prefetcher.next();
      if (batch) copies->add(std::move(*batch));
    };
    if (copies->size() == 0) add_next();
    if (copies->size() == 0) return std::nullopt;
    Batch batch = copies->take();
    state->cut(batch);
    while (copies->size() < wanted && prefetcher.has_next()) add_next();
    return batch;
  }

  std::shared_ptr<const Loader::State> state;
  std::optional<DeviceCopies> copies;  // set if batches go to a GPU
  Prefetcher prefetcher;               // destroyed before `state`, which its threads use
  std::optional<Batch> current;
};

Epoch::Epoch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Epoch::Epoch(Epoch&&) noexcept = default;
Epoch& Epoch::operator=(Epoch&&) noexcept = default;
Epoch::~Epoch() = default;

Batch* Epoch::next() {
  const auto begin = Clock::now();
  impl_->current.reset();  // freed before the wait, so that the next batch can reuse the memory
  impl_->current = impl_->copies ? impl_->next_on_device() : impl_->prefetcher.next();
  const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  impl_->state->waited_ns.fetch_add(waited.count(), std::memory_order_relaxed);
  if (const int workers = impl_->prefetcher.workers(); workers > 0) impl_->state->workers = workers;
  return impl_->current ? &*impl_->current : nullptr;
}

Loader::Loader(DatasetPtr data, const LoaderOptions& options, const Member& member) {
  const auto [rank, world_size] = std::pair(member.rank, member.size);
  REIGEN_CHECK(data != nullptr, "a loader needs a dataset");
  REIGEN_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "rank {} is outside of a group of {}", rank,
               world_size);
  REIGEN_CHECK(options.micro_batch >= 0, "micro_batch must be at least 1, or 0 for whole shares, got {}",
               options.micro_batch);
  REIGEN_CHECK(options.max_bad >= 0, "max_bad must be at least 0, got {}", options.max_bad);
  REIGEN_CHECK(options.workers >= 0 && options.workers <= 1024, "workers must be in 0..1024, got {}", options.workers);
  REIGEN_CHECK(options.most_workers == 0 || (options.workers > 0 && options.most_workers >= options.workers),
               "most_workers must be 0 or at least workers, which must be at least 1, got {} and {}",
               options.most_workers, options.workers);
  REIGEN_CHECK(options.most_workers <= 1024, "most_workers must be at most 1024, got {}", options.most_workers);
  REIGEN_CHECK(options.device_prefetch >= 0 && options.device_prefetch <= 1024,
               "device_prefetch must be in 0..1024, got {}", options.device_prefetch);
  REIGEN_CHECK(!options.device.is_cuda() || options.device.has_index(), "the loader's device {} has no index",
               options.device.str());
  REIGEN_CHECK(options.prefetch >= 1 && options.prefetch <= 65536, "prefetch must be in 1..65536, got {}",
               options.prefetch);
  state_ = std::make_shared<const State>(std::move(data), options, rank, world_size);
}

Epoch Loader::epoch(std::int64_t epoch, std::int64_t start_position) const {
  return Epoch(std::make_unique<Epoch::Impl>(state_, epoch, start_position));
}

std::int64_t Loader::size() const { return state_->sampler.options().size; }

const SamplerOptions& Loader::sampling() const { return state_->sampler.options(); }

std::int64_t Loader::global_batch() const { return state_->sampler.options().global_batch; }

std::int64_t Loader::steps(std::int64_t start_position) const { return state_->sampler.steps(start_position); }

std::vector<std::int64_t> Loader::global_indices(const Batch& batch) const {
  const auto order = state_->order(batch.epoch);
  std::vector<std::int64_t> indices;
  for (std::int64_t p = batch.position - batch.global_count; p < batch.position; ++p) indices.push_back((*order)[p]);
  return indices;
}

int Loader::workers() const { return state_->workers; }

std::int64_t Loader::bad_samples() const { return state_->bad.count(); }

double Loader::wait_seconds() const {
  return static_cast<double>(state_->waited_ns.load(std::memory_order_relaxed)) * 1e-9;
}

}  // namespace reigen::data
