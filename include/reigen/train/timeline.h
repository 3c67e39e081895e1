// Records the actions of all ranks on one common clock, and writes them to a file for Perfetto (ui.perfetto.dev) or
// chrome://tracing.
//
//   reigen::Timeline timeline(world);
//   for (...) {
//     { auto span = timeline.span("forward"); loss = ...; }
//     { auto span = timeline.span("backward"); loss.backward(); }
//     timeline.add_communication(parallel.last_buckets());   // not inside a span, because it takes about 1 ms
//   }
//   timeline.write("trace.json");                            // every rank; rank 0 writes
//
// Each rank is shown as a process. The first row of a rank shows its spans, and inside backward the waits for buckets.
// The next row shows the spans of the rank's GPU, if there are any. The rows below show the calls of the rank's
// communicator while they are in flight, each with its name, the caller's tag and its bytes.
//
// Times come from the machine's clock. If a rank is on another machine than rank 0 (its kernel has another boot id),
// its times are corrected by the difference of the two clocks. The difference is measured by 32 round trips. The
// shortest round trip counts; the error is at most half of its time.
//
// Trace Event Format, complete events: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
// Thread rule: one thread at a time may use a Timeline.
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
  // Starts an empty timeline, without earlier calls of the communicator. Does not communicate.
  explicit Timeline(Communicator world);

  // The current time in nanoseconds since 1970.
  static std::int64_t now();

  // Adds a span to the timeline that lasts from its construction to its destruction.
  class Span {
   public:
    Span(Timeline& timeline, std::string name) : timeline_(timeline), name_(std::move(name)), begin_(now()) {}
    ~Span() { timeline_.add(std::move(name_), begin_, now()); }
    Span(const Span&) = delete;  // a span ends only once
    Span& operator=(const Span&) = delete;

   private:
    Timeline& timeline_;
    std::string name_;
    std::int64_t begin_;
  };
  [[nodiscard]] Span span(std::string name) { return {*this, std::move(name)}; }
  void add(std::string name, std::int64_t begin, std::int64_t end);
  // Adds a span of the rank's GPU, which gets a row of its own.
  void add_of_gpu(std::string name, std::int64_t begin, std::int64_t end);

  // Adds the calls that ended since the last call of this function (as far as they are among the communicator's last
  // 1,024 calls), and the waits for `buckets` (DataParallelBase::last_buckets()).
  void add_communication(const std::vector<parallel::BucketTimes>& buckets = {});

  // One entry for each bucket (gradients that are sent in one call) of this rank, in the order in which the buckets are
  // sent. The values are means over the steps that were added.
  struct BucketMean {
    double bytes = 0;
    double parameters = 0;
    double in_flight_s = 0;  // from the beginning of its first call to the end of its last call
    double waited_s = 0;     // the part of that time for which the training loop waited
  };
  std::vector<BucketMean> bucket_means() const;

  // Returns the events of all ranks as one JSON text on rank 0, and an empty text on the other ranks. Collective and
  // blocking.
  std::string to_json();
  // Writes the text of to_json() to a file on rank 0. Collective and blocking. Throws IoError on every rank if the file
  // cannot be written.
  void write(const std::filesystem::path& path);

 private:
  struct Event {
    std::string name;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::string group = {};  // group of a call; empty for a span
    std::string tag = {};
    std::uint64_t bytes = 0;
  };

  std::string own_events(std::int64_t origin, std::int64_t offset) const;

  Communicator world_;
  std::vector<Event> spans_;
  std::vector<Event> spans_of_gpu_;
  std::vector<Event> calls_;
  std::vector<std::vector<parallel::BucketTimes>> buckets_;  // one entry for each step
  std::set<std::uint64_t> taken_;                            // numbers of calls that were added, or made earlier
};

}  // namespace reigen::train

namespace reigen {
using train::Timeline;
}  // namespace reigen
