// What every rank did when, on one clock, as a file for Perfetto (ui.perfetto.dev) or chrome://tracing.
//
//   reigen::Timeline timeline(world);
//   for (...) {
//     { auto span = timeline.span("forward"); loss = ...; }
//     { auto span = timeline.span("backward"); loss.backward(); }
//     timeline.add_communication(parallel.last_buckets());   // outside of what is measured: it takes about 1 ms
//   }
//   timeline.write("trace.json");                            // every rank; rank 0 writes
//
// A rank is a process of the picture. Its first row holds the spans, with the waits for buckets inside of backward; the
// rows below hold the calls of its communicator while they are under way: name, the caller's tag, bytes.
//
// Times are the machine's clock; ranks on another machine than rank 0 (another boot of a kernel) are moved by the
// difference of the two clocks, measured by 32 round trips, the shortest of which counts: right to half of that.
//
// Trace Event Format, complete events: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::train {

class Timeline {
 public:
  // Calls of the communicator before this moment are not in it. Local.
  explicit Timeline(Communicator world);

  // Nanoseconds since 1970.
  static std::int64_t now();

  // From its making to its end.
  class Span {
   public:
    Span(Timeline& timeline, std::string name) : timeline_(timeline), name_(std::move(name)), begin_(now()) {}
    ~Span() { timeline_.add(std::move(name_), begin_, now()); }
    Span(const Span&) = delete;  // ends once
    Span& operator=(const Span&) = delete;

   private:
    Timeline& timeline_;
    std::string name_;
    std::int64_t begin_;
  };
  [[nodiscard]] Span span(std::string name) { return {*this, std::move(name)}; }
  void add(std::string name, std::int64_t begin, std::int64_t end);

  // The calls that ended since the last time (of the last 1,024), and the waits for these buckets.
  void add_communication(const std::vector<parallel::BucketTimes>& buckets = {});

  // Of this rank's buckets, by their place in the order in which they are given away; means over the steps that were
  // added.
  struct BucketMean {
    double bytes = 0;
    double parameters = 0;
    double in_flight_s = 0;  // its calls, from the first one's beginning to the last one's end
    double waited_s = 0;     // of that, seen by the training loop
  };
  std::vector<BucketMean> bucket_means() const;

  // All ranks' events as one JSON text, on rank 0; empty elsewhere. Collective and blocking.
  std::string to_json();
  // The same into a file that rank 0 writes. Throws IoError on every rank when it cannot.
  void write(const std::filesystem::path& path);

 private:
  struct Event {
    std::string name;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::string group = {};  // of a call
    std::string tag = {};
    std::uint64_t bytes = 0;
  };

  std::string own_events(std::int64_t origin, std::int64_t offset) const;

  Communicator world_;
  std::vector<Event> spans_;
  std::vector<Event> calls_;
  std::vector<std::vector<parallel::BucketTimes>> buckets_;  // of each step
  std::set<std::uint64_t> taken_;                            // numbers of calls
};

}  // namespace reigen::train

namespace reigen {
using train::Timeline;
}  // namespace reigen
