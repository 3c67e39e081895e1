#include "train/watch/step_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::train {

namespace {

std::optional<std::int64_t> parse_step(std::string_view text) {
  const auto step = base::parse<std::int64_t>(text);
  return step && *step >= 1 ? step : std::nullopt;
}

std::string table_of(const std::vector<Timeline::BucketMean>& buckets) {
  if (buckets.empty()) return {};
  std::string text = fmt::format("\n  {:>6} {:>10} {:>10} {:>12} {:>12} {:>8}", "bucket", "parameters", "MiB",
                                 "in flight ms", "exposed ms", "hidden");
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Timeline::BucketMean& bucket = buckets[i];
    const double exposed = std::min(bucket.waited_s, bucket.in_flight_s);
    const double hidden = bucket.in_flight_s > 0 ? 1 - exposed / bucket.in_flight_s : 1;
    text += fmt::format("\n  {:>6} {:>10.0f} {:>10.3f} {:>12.3f} {:>12.3f} {:>6.0f} %", i, bucket.parameters,
                        bucket.bytes / static_cast<double>(kMiB), bucket.in_flight_s * 1e3, bucket.waited_s * 1e3,
                        hidden * 100);
  }
  return text;
}

}  // namespace

StepRange parse_step_range(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string_view all = text;
  const auto first = parse_step(all.substr(0, colon));
  const auto last = colon == std::string::npos ? first : parse_step(all.substr(colon + 1));
  if (first && last && *first <= *last) return {*first, *last};
  throw InvalidArgument(Report{.what = "run.trace is not a range of steps",
                               .got = text,
                               .expected = "FIRST:LAST with 1 <= FIRST <= LAST, or one step",
                               .fix = "--run.trace 10:15"});
}

void StepTrace::begin(std::int64_t step, double waited) {
  step_ = step;
  if (step < steps_.first || step > steps_.last) return;
  if (!timeline_) {
    timeline_.emplace(world_);
    first_ = step;
  }
  begin_ = last_lap_ = Timeline::now() - static_cast<std::int64_t>(waited * 1e9);
}

void StepTrace::lap(const char* name) {
  if (!timeline_ || step_ > steps_.last) return;
  const std::int64_t now = Timeline::now();
  timeline_->add(name, last_lap_, now);
  last_lap_ = now;
}

void StepTrace::end(const parallel::DataParallelBase& parallel, const parallel::Pipeline& pipeline) {
  if (!timeline_ || step_ > steps_.last) return;
  timeline_->add(fmt::format("step {}", step_), begin_, last_lap_);
  if (pipeline) {
    const parallel::PipelineReport& report = pipeline.last();
    const auto at = [&](double seconds) { return report.began + static_cast<std::int64_t>(seconds * 1e9); };
    for (const auto& [action, start, end] : report.spans) {
      timeline_->add(schedule::to_text(action), at(start), at(end));
    }
  }
  timeline_->add_communication(parallel.last_buckets());
}

std::string StepTrace::write(const std::filesystem::path& path) {
  timeline_->write(path);
  const std::string text =
      fmt::format("trace of steps {} to {}: {} (ui.perfetto.dev opens it){}", first_, std::min(step_, steps_.last),
                  path.string(), table_of(timeline_->bucket_means()));
  timeline_.reset();
  return text;
}

}  // namespace reigen::train
