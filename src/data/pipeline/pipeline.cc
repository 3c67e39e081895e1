#include "reigen/data/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "data/pipeline/source.h"

namespace reigen::data {

Pipeline::Pipeline(DatasetPtr data) : source_(source_of(data)), plain_(std::move(data)) {}

Pipeline::Pipeline(std::shared_ptr<const SampleSource> source) : source_(std::move(source)) {}

Pipeline Pipeline::with(std::shared_ptr<const SampleSource> source) const {
  Pipeline next = *this;
  next.source_ = std::move(source);
  next.plain_ = nullptr;
  return next;
}

Pipeline Pipeline::map(Step step) const {
  Pipeline next = with(mapped(source_, std::move(step), maps_));
  ++next.maps_;
  return next;
}

Pipeline Pipeline::output(const image::Output& output) const {
  Pipeline next = *this;
  next.output_ = output;
  return next;
}

Pipeline Pipeline::collate(Collate function) const {
  REIGEN_CHECK(function != nullptr, "collate() needs a function");
  Pipeline next = with(source_);
  next.collate_ = std::move(function);
  return next;
}

Pipeline Pipeline::mix_pairs(const Mixing& mixing) const {
  REIGEN_CHECK(mixing.mixup >= 0 && mixing.cutmix >= 0 && std::isfinite(mixing.mixup) && std::isfinite(mixing.cutmix),
               "mixup and cutmix must be at least 0, got {} and {}", mixing.mixup, mixing.cutmix);
  Pipeline next = with(source_);
  next.mixing_.reset();
  if (mixing.mixup > 0 || mixing.cutmix > 0) next.mixing_ = mixing;
  return next;
}

Pipeline Pipeline::subset(std::int64_t begin, std::int64_t end) const {
  REIGEN_CHECK(begin >= 0 && begin < end && end <= size(), "samples {}..{} are not in '{}', which has {}", begin,
               end - 1, name(), size());
  std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return subset(std::move(indices));
}

Pipeline Pipeline::subset(std::vector<std::int64_t> indices) const {
  REIGEN_CHECK(!indices.empty(), "a subset of '{}' needs a sample", name());
  return with(chosen(source_, std::move(indices), "part"));
}

std::vector<Pipeline> Pipeline::split(const std::vector<double>& fractions, std::uint64_t seed) const {
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  const bool positive = std::all_of(fractions.begin(), fractions.end(), [](double one) { return one > 0; });
  REIGEN_CHECK(positive && std::abs(sum - 1) <= 1e-9,
               "the fractions of a split are positive and their sum is 1, got {}", fmt::join(fractions, ", "));
  const Order order(size(), true, seed, 0);
  std::vector<Pipeline> parts;
  double before = 0;
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < fractions.size(); ++k) {
    before += fractions[k];
    const std::int64_t end = k + 1 == fractions.size() ? size() : std::llround(before * static_cast<double>(size()));
    REIGEN_CHECK(end > begin, "'{}' has too few samples, {}, for a part of {}", name(), size(), fractions[k]);
    std::vector<std::int64_t> indices;
    for (std::int64_t position = begin; position < end; ++position) indices.push_back(order[position]);
    std::sort(indices.begin(), indices.end());
    parts.push_back(with(chosen(source_, std::move(indices), fmt::format("part {}", k).c_str())));
    begin = end;
  }
  return parts;
}

Pipeline Pipeline::shuffle(const ShuffleOptions& options) const {
  Pipeline next = *this;
  next.batches_.shuffle = options.how;
  next.batches_.seed = options.seed;
  next.has_batches_ = true;
  return next;
}

Pipeline Pipeline::shard(const Member& member) const {
  Pipeline next = *this;
  next.member_ = member;
  next.has_batches_ = true;
  return next;
}

Pipeline Pipeline::batch(std::int64_t samples) const {
  Pipeline next = *this;
  next.batches_.batch_size = samples;
  next.batches_.global_batch.reset();
  next.has_batches_ = true;
  return next;
}

Pipeline Pipeline::global_batch(std::int64_t samples) const {
  Pipeline next = *this;
  next.batches_.global_batch = samples;
  next.batches_.batch_size.reset();
  next.has_batches_ = true;
  return next;
}

Pipeline Pipeline::prefetch(int batches, int workers, int most_workers) const {
  Pipeline next = *this;
  next.batches_.prefetch = batches;
  next.batches_.workers = workers;
  next.batches_.most_workers = most_workers;
  next.has_batches_ = true;
  return next;
}

Loader Pipeline::loader() const {
  Pipeline samples = *this;
  samples.has_batches_ = false;
  return Loader(samples.dataset(), batches_, member_);
}

DatasetPtr Pipeline::dataset() const {
  REIGEN_CHECK(!has_batches_,
               "the pipeline of '{}' has shuffle(), shard(), batch() or prefetch(), which the trainer or the Loader "
               "decides\n  fix: leave them out, or call loader()",
               name());
  REIGEN_CHECK(!(mixing_ && collate_), "'{}' has collate() and mix_pairs(), of which it can have one", name());
  return plain_ ? plain_ : dataset_of(source_, {.output = output_, .collate = collate_, .mixing = mixing_});
}

std::int64_t Pipeline::size() const { return source_->size(); }

const std::string& Pipeline::name() const { return source_->name(); }

Sample Pipeline::sample(std::int64_t index, const Pass& pass) const {
  REIGEN_CHECK(index >= 0 && index < size(), "sample {} is not in '{}', which has {}", index, name(), size());
  return source_->sample(pass, index);
}

// The sources of pipelines that are joined to one.
struct PipelineAccess {
  static Pipeline joined_like(const Pipeline& first, SourcePtr source) { return first.with(std::move(source)); }
  static Pipeline of(SourcePtr source) { return Pipeline(std::move(source)); }
  static SourcePtr source(const Pipeline& pipeline) { return pipeline.source_; }
  static std::uint32_t maps(const Pipeline& pipeline) { return pipeline.maps_; }
  static void set_maps(Pipeline& pipeline, std::uint32_t maps) { pipeline.maps_ = maps; }
  static bool has_batches(const Pipeline& pipeline) { return pipeline.has_batches_; }
};

Pipeline pipeline_of(SourcePtr source) { return PipelineAccess::of(std::move(source)); }

namespace {

Pipeline join(const std::vector<Pipeline>& parts, std::vector<std::pair<std::size_t, std::int64_t>> picks,
              const char* how) {
  std::vector<SourcePtr> sources;
  std::uint32_t maps = 0;
  for (const Pipeline& part : parts) {
    REIGEN_CHECK(!PipelineAccess::has_batches(part),
                 "'{}' has batches already; call shuffle(), shard() and batch() on "
                 "the joined pipeline",
                 part.name());
    sources.push_back(PipelineAccess::source(part));
    maps = std::max(maps, PipelineAccess::maps(part));
  }
  Pipeline all = PipelineAccess::joined_like(parts[0], joined(std::move(sources), std::move(picks), how));
  PipelineAccess::set_maps(all, maps);  // later steps draw other numbers than the steps of any part
  return all;
}

}  // namespace

Pipeline concat(const std::vector<Pipeline>& parts) {
  REIGEN_CHECK(!parts.empty(), "concat() needs a pipeline");
  std::vector<std::pair<std::size_t, std::int64_t>> picks;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (std::int64_t i = 0; i < parts[part].size(); ++i) picks.emplace_back(part, i);
  }
  return join(parts, std::move(picks), " + ");
}

Pipeline mix(const std::vector<MixPart>& parts, std::int64_t size) {
  REIGEN_CHECK(!parts.empty() && size >= 1, "mix() needs a pipeline and at least one sample, got {} and {}",
               parts.size(), size);
  std::vector<Pipeline> pipelines;
  double sum = 0;
  for (const MixPart& part : parts) {
    REIGEN_CHECK(part.weight > 0 && std::isfinite(part.weight), "the weight of '{}' must be positive, got {}",
                 part.pipeline.name(), part.weight);
    pipelines.push_back(part.pipeline);
    sum += part.weight;
  }
  // The next sample is of the part that is furthest behind its share.
  std::vector<std::pair<std::size_t, std::int64_t>> picks;
  std::vector<std::int64_t> taken(parts.size());
  for (std::int64_t n = 1; n <= size; ++n) {
    std::size_t next = 0;
    double most = -1;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const double behind = parts[k].weight / sum * static_cast<double>(n) - static_cast<double>(taken[k]);
      if (behind > most) {
        most = behind;
        next = k;
      }
    }
    picks.emplace_back(next, taken[next]++ % pipelines[next].size());
  }
  return join(pipelines, std::move(picks), " & ");
}

}  // namespace reigen::data
