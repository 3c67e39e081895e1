#include "reigen/train/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "reigen/comm/byte_strings.h"
#include "reigen/format/atomic_file.h"
#include "train/run/agree.h"
#include "train/watch/clock_offset.h"

namespace reigen::train {

namespace {

constexpr int kSpanRow = 0;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string name_of_row(int rank, int row, const std::string& name) {
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":{0},"tid":{1},"args":{{"name":{2}}}}},
{{"name":"thread_sort_index","ph":"M","pid":{0},"tid":{1},"args":{{"sort_index":{1}}}}},
)",
                     rank, row, quoted(name));
}

}  // namespace

Timeline::Timeline(Communicator world) : world_(std::move(world)) {
  for (const comm::PastCall& call : world_.history()) taken_.insert(call.number);
}

std::int64_t Timeline::now() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Timeline::add(std::string name, std::int64_t begin, std::int64_t end) {
  spans_.push_back({.name = std::move(name), .begin = begin, .end = end});
}

void Timeline::add_of_gpu(std::string name, std::int64_t begin, std::int64_t end) {
  spans_of_gpu_.push_back({.name = std::move(name), .begin = begin, .end = end});
}

void Timeline::add_communication(const std::vector<parallel::BucketTimes>& buckets) {
  for (comm::PastCall& call : world_.history()) {
    if (call.ended == 0 || !taken_.insert(call.number).second) continue;
    calls_.push_back({.name = std::move(call.kind),
                      .begin = call.started != 0 ? call.started : call.called,
                      .end = call.ended,
                      .group = std::move(call.group),
                      .tag = std::move(call.tag),
                      .bytes = call.bytes});
  }
  if (!buckets.empty()) buckets_.push_back(buckets);
}

std::vector<Timeline::BucketMean> Timeline::bucket_means() const {
  std::multimap<std::string, const Event*> by_tag;
  for (const Event& call : calls_) by_tag.emplace(call.tag, &call);
  // Several data_parallel wrappers may use the same tag. So only those calls count that overlap the time from the
  // completion of the bucket to the end of the wait for it.
  const auto seconds_in_flight = [&](const parallel::BucketTimes& bucket) {
    std::int64_t begin = bucket.waited_to;
    std::int64_t end = bucket.complete;
    const auto [first, last] = by_tag.equal_range(bucket.tag);
    for (auto call = first; call != last; ++call) {
      if (call->second->end < bucket.complete || call->second->begin > bucket.waited_to) continue;
      begin = std::min(begin, call->second->begin);
      end = std::max(end, call->second->end);
    }
    return static_cast<double>(std::max<std::int64_t>(end - begin, 0)) * 1e-9;
  };
  std::vector<BucketMean> means;
  std::vector<double> steps;
  for (const auto& step : buckets_) {
    if (means.size() < step.size()) means.resize(step.size());
    steps.resize(means.size());
    for (std::size_t i = 0; i < step.size(); ++i) {
      means[i].in_flight_s += seconds_in_flight(step[i]);
      means[i].bytes += static_cast<double>(step[i].bytes);
      means[i].parameters += static_cast<double>(step[i].parameters);
      means[i].waited_s += static_cast<double>(step[i].waited_to - step[i].waited_from) * 1e-9;
      steps[i] += 1;
    }
  }
  for (std::size_t i = 0; i < means.size(); ++i) {
    means[i].bytes /= steps[i];
    means[i].parameters /= steps[i];
    means[i].in_flight_s /= steps[i];
    means[i].waited_s /= steps[i];
  }
  return means;
}

// The events of this rank as JSON. Each event ends with a comma; rank 0 closes the list. Calls that overlap get
// different rows.
std::string Timeline::own_events(std::int64_t origin, std::int64_t offset) const {
  const int rank = world_.rank();
  const auto complete = [&](const Event& event, int row) {
    std::string arguments;
    if (!event.tag.empty()) arguments += fmt::format(R"("tag":{},)", quoted(event.tag));
    if (!event.group.empty()) {
      arguments += fmt::format(R"("group":{},"bytes":{},)", quoted(event.group), event.bytes);
    }
    if (!arguments.empty()) arguments.pop_back();
    return fmt::format(R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}},
)",
                       quoted(event.name), rank, row, static_cast<double>(event.begin + offset - origin) * 1e-3,
                       static_cast<double>(std::max<std::int64_t>(event.end - event.begin, 0)) * 1e-3, arguments);
  };
  std::string text = fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}},
{{"name":"process_sort_index","ph":"M","pid":{0},"tid":0,"args":{{"sort_index":{0}}}}},
)",
                                 rank);
  text += name_of_row(rank, kSpanRow, "training");
  for (const Event& span : spans_) text += complete(span, kSpanRow);
  for (const auto& step : buckets_) {
    for (const parallel::BucketTimes& bucket : step) {
      text +=
          complete({.name = "wait", .begin = bucket.waited_from, .end = bucket.waited_to, .tag = bucket.tag}, kSpanRow);
    }
  }
  int first_of_calls = kSpanRow + 1;
  if (!spans_of_gpu_.empty()) text += name_of_row(rank, first_of_calls, "GPU");
  for (const Event& span : spans_of_gpu_) text += complete(span, first_of_calls);
  if (!spans_of_gpu_.empty()) ++first_of_calls;
  std::vector<Event> calls = calls_;
  std::stable_sort(calls.begin(), calls.end(), [](const Event& a, const Event& b) { return a.begin < b.begin; });
  std::vector<std::int64_t> busy_until;
  for (const Event& call : calls) {
    const auto free =
        std::find_if(busy_until.begin(), busy_until.end(), [&](std::int64_t until) { return until <= call.begin; });
    const auto row = static_cast<std::size_t>(free - busy_until.begin());
    if (free == busy_until.end()) busy_until.push_back(0);
    busy_until[row] = call.end;
    Event named = call;
    if (!call.tag.empty()) named.name += " " + call.tag;
    text += complete(named, first_of_calls + static_cast<int>(row));
  }
  for (std::size_t row = 0; row < busy_until.size(); ++row) {
    text += name_of_row(rank, first_of_calls + static_cast<int>(row), "communication");
  }
  return text;
}

std::string Timeline::to_json() {
  const auto machines = comm::all_gather_bytes(machine_word(), world_);
  const std::int64_t offset = offset_to_rank_0(world_, machines, now);
  std::int64_t origin = now() + offset;
  for (const auto* events : {&spans_, &spans_of_gpu_, &calls_}) {
    for (const Event& event : *events) origin = std::min(origin, event.begin + offset);
  }
  world_.all_reduce(&origin, &origin, 1, DataType::kInt64, ReduceOp::kMin, {.tag = "begin of the timeline"});
  const auto all = comm::all_gather_bytes(own_events(origin, offset), world_);
  if (world_.rank() != 0) return {};
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const std::string& events : all) text += events;
  text.resize(text.size() - 2);  // removes the last comma and the newline
  return text + "\n]}\n";
}

void Timeline::write(const std::filesystem::path& path) {
  const std::string text = to_json();
  together(world_, "timeline", [&] {
    if (world_.rank() == 0) format::write_file_atomically(path, std::string_view(text));
  });
}

}  // namespace reigen::train
