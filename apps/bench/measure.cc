#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <limits>
#include <numeric>
#include <thread>

#include "bench/bound.h"
#include "bench/check.h"
#include "bench/memory.h"
#include "bench/statistics.h"

namespace reigen::apps::bench {

namespace {

// The processor time of all threads of this process.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Makes calls that use the buffers of one size in turn.
class Caller {
 public:
  Caller(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory)
      : world_(world),
        problem_(problem),
        in_flight_(static_cast<std::size_t>(options.in_flight)),
        late_(options.late_ms) {
    const std::size_t stride = place_bytes(problem);
    const std::size_t slots = slots_of(stride, options);
    for (std::size_t i = 0; i < slots; ++i) places_.push_back(place_at(problem, memory + i * stride));
    // With --shared the output of one rank is the input of the other ranks, so the output is not filled.
    for (const Place& place : places_) {
      if (options.fill) fill(world, problem, {place.input, options.shared ? nullptr : place.output});
    }
    world.barrier();
  }

  std::size_t check() {
    std::size_t mine = 0;
    if (problem_.operation == Operation::kBarrier) {
      mine = count_wrong_barrier(world_);
    } else {
      call(world_, problem_, places_.front());
      mine = count_wrong(world_, problem_, places_.front());
    }
    const auto wrong = static_cast<std::int64_t>(mine);
    std::int64_t all = 0;
    world_.all_reduce(&wrong, &all, 1, comm::DataType::kInt64, comm::ReduceOp::kSum);
    return static_cast<std::size_t>(all);
  }

  // The time of one call on this rank, in seconds.
  double time_one() {
    if (late_.count() == 0) return time_call();
    if (problem_.rank + 1 == problem_.ranks) std::this_thread::sleep_for(late_);
    const double cpu = cpu_seconds();
    const double seconds = time_call();
    cpu_ += cpu_seconds() - cpu;
    wall_ += seconds;
    return seconds;
  }

  const std::string& algorithm() const { return algorithm_; }

  // The share of a core that this process used during all calls so far.
  double cpu_share() const { return wall_ > 0 ? cpu_ / wall_ : 0; }

 private:
  const Place& next_place() {
    const Place& place = places_[next_];
    next_ = next_ + 1 == places_.size() ? 0 : next_ + 1;
    return place;
  }

  double time_call() {
    if (problem_.has_root() && late_.count() == 0) world_.barrier();
    CallList calls;
    for (std::size_t i = 1; i < in_flight_; ++i) add_call(calls, problem_, next_place());
    const Place& place = next_place();
    const auto begin = std::chrono::steady_clock::now();
    if (calls.empty()) {
      call(world_, problem_, place);
    } else {
      add_call(calls, problem_, place);
      world_.run(calls);
    }
    const std::chrono::duration<double> taken =
        (std::chrono::steady_clock::now() - begin) / static_cast<double>(in_flight_);
    if (algorithm_.empty()) {
      algorithm_ = problem_.operation == Operation::kSend ? "message" : world_.last_algorithm(world_.device().kind);
    }
    return taken.count();
  }

  const Communicator& world_;
  const Problem& problem_;
  std::size_t in_flight_;
  std::chrono::milliseconds late_;
  std::string algorithm_;
  double cpu_ = 0;
  double wall_ = 0;
  std::vector<Place> places_;
  std::size_t next_ = 0;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::size_t agree(const Communicator& world, double wanted) {
  auto value = static_cast<std::int64_t>(wanted);
  world.broadcast(&value, 1, comm::DataType::kInt64, 0);
  return static_cast<std::size_t>(value);
}

// Warms up, and returns the number of iterations that take options.seconds. Every rank gets the same number.
std::size_t warm_up(const Communicator& world, Caller& caller, const BenchOptions& options) {
  const int probes = options.iterations == 0 ? std::max(1, options.warmup) : options.warmup;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < probes; ++i) {
    const double begin = now();
    caller.time_one();
    least = std::min(least, now() - begin);
  }
  if (options.iterations > 0) return static_cast<std::size_t>(options.iterations);
  return agree(world, std::clamp(options.seconds / std::max(least, 1e-9), 5.0, 20000.0));
}

// This rank's seconds of each iteration. On a busy machine the iterations may take far longer than the warm-up showed;
// in this case rank 0 ends the measurement after twice options.seconds, but not before a tenth of the iterations is
// done.
std::vector<double> time_iterations(const Communicator& world, Caller& caller, const BenchOptions& options) {
  const std::size_t wanted = warm_up(world, caller, options);
  const std::size_t part = options.iterations > 0 ? wanted : std::max<std::size_t>(5, wanted / 10);
  std::vector<double> times;
  times.reserve(wanted);
  const double begin = now();
  while (times.size() < wanted) {
    const std::size_t end = std::min(wanted, times.size() + part);
    while (times.size() < end) times.push_back(caller.time_one());
    if (end < wanted && agree(world, now() - begin > 2 * options.seconds ? 1 : 0) == 1) break;
  }
  return times;
}

}  // namespace

std::size_t slots_of(std::size_t bytes, const BenchOptions& options) {
  return std::max(slots_of(bytes, options.cold), static_cast<std::size_t>(options.in_flight));
}

std::shared_ptr<std::byte> allocate_for(const Communicator& world, const std::vector<Problem>& problems,
                                        const BenchOptions& options) {
  std::size_t bytes = 64;
  for (const Problem& problem : problems) {
    bytes = std::max(bytes, place_bytes(problem) * slots_of(place_bytes(problem), options));
  }
  if (options.foreign) return allocate_private(bytes);
  if (options.shared) return std::static_pointer_cast<std::byte>(world.allocate_shared(bytes));
  return std::static_pointer_cast<std::byte>(world.allocate(bytes, world.device()));
}

Times time_size(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory) {
  Times times;
  Caller caller(world, problem, options, memory);
  if (options.check) times.wrong = caller.check();
  times.slowest = slowest_of_ranks(world, time_iterations(world, caller, options));
  times.algorithm = caller.algorithm();
  if (options.late_ms > 0) times.waiting_cpu = caller.cpu_share();
  return times;
}

Row measure(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory) {
  const Times times = time_size(world, problem, options, memory);
  Row row{.problem = problem, .algorithm = times.algorithm, .wrong = times.wrong, .waiting_cpu = times.waiting_cpu};
  row.p50 = quantile(times.slowest, 0.5);
  row.mean =
      std::accumulate(times.slowest.begin(), times.slowest.end(), 0.0) / static_cast<double>(times.slowest.size());
  row.p99 = quantile(times.slowest, 0.99);
  row.least = quantile(times.slowest, 0);
  row.bound = measure_bound(world, problem, options.cold);
  return row;
}

}  // namespace reigen::apps::bench
