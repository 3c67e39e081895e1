#include "trial/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "trial/grid.h"
#include "trial/trial.h"

namespace reigen::trial {

namespace {

using comm::OperationKind;

constexpr std::size_t kInFlight = 6;
constexpr std::uint64_t kLooks = 20;

// The same problem on all ranks of a group.
Problem random_problem(std::uint64_t seed, int ranks) {
  static const auto kAlone = all_combinations(1);
  static const auto kTogether = all_combinations(2);
  const auto& combinations = ranks == 1 ? kAlone : kTogether;
  std::uint64_t hash = mix(seed);
  const auto below = [&hash](std::uint64_t limit) {
    hash = mix(hash);
    return hash % limit;
  };
  Problem p = combinations[below(combinations.size())];
  const std::uint64_t size = below(50);
  p.count = below(size < 40 ? 600 : size < 49 ? 8000 : 100000);
  const OperationKind even = comm::even_kind(p.kind);
  const bool one_place =
      even == OperationKind::kAllToAll || even == OperationKind::kBroadcast || even == OperationKind::kSend;
  p.in_place = !one_place && below(2) == 0;
  p.memory = static_cast<Memory>(below(3));
  p.manner = static_cast<Manner>(below(4));
  p.root = static_cast<int>(below(static_cast<std::uint64_t>(ranks)));
  p.seed = seed;
  return p;
}

class Operations {
 public:
  Operations(Communicator& world, const SoakOptions& options) : world_(world), options_(options) {}

  Soaked run() {
    split();
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t every = std::max<std::uint64_t>(1, options_.operations / kLooks);
    while (good_ && goes_on(begin)) {
      for (std::uint64_t i = 0; i < every && good_; ++i) step();
      drain();
      if (good_) look();
      if (result_.looks.size() % 5 == 0) split();
    }
    return std::move(result_);
  }

 private:
  struct Pending {
    std::unique_ptr<Trial> trial;
    std::vector<Work> works;
  };

  // Rank 0's clock decides.
  bool goes_on(std::chrono::steady_clock::time_point begin) {
    if (options_.seconds == 0) return result_.count < options_.operations;
    std::uint8_t yes = std::chrono::steady_clock::now() - begin < std::chrono::seconds(options_.seconds) ? 1 : 0;
    world_.broadcast(&yes, 1, comm::DataType::kUint8, 0);
    return yes != 0;
  }

  void split() {
    groups_.clear();
    groups_.push_back(world_);
    groups_.push_back(*world_.split(world_.rank() % 2));
    groups_.push_back(*world_.split(0, -world_.rank()));
    supplies_.clear();
    for (auto& group : groups_) supplies_.emplace_back(group, false);
  }

  void step() {
    const std::uint64_t number = options_.seed * 1000000007 + result_.count++;
    const std::size_t which = mix(number + 5) % groups_.size();
    Communicator& group = groups_[which];
    const Problem p = random_problem(number, group.size());
    auto trial = std::make_unique<Trial>(p, group, supplies_[which]);
    if (p.manner != Manner::kAsync) {
      trial->run();
      return check(*trial);
    }
    // Each rank may wait for them in another order, so the group's thread makes their progress.
    auto works = trial->start(comm::Progress::kThread);
    pending_.push_back({std::move(trial), std::move(works)});
    while (pending_.size() > kInFlight) end_one(mix(number + static_cast<std::uint64_t>(world_.rank())));
  }

  void end_one(std::uint64_t hash) {
    const auto it = pending_.begin() + static_cast<std::ptrdiff_t>(hash % pending_.size());
    for (const Work& work : it->works) work.wait();
    check(*it->trial);
    pending_.erase(it);
  }

  void drain() {
    while (!pending_.empty()) end_one(0);
  }

  void check(const Trial& trial) {
    const auto wrong = trial.find_wrong();
    if (!wrong || !good_) return;
    good_ = false;
    options_.on_wrong(*wrong);
  }

  void look() {
    world_.barrier();
    result_.looks.push_back(read_resources());
    world_.barrier();
  }

  Communicator& world_;
  const SoakOptions& options_;
  std::vector<Communicator> groups_;
  std::vector<Supply> supplies_;
  std::vector<Pending> pending_;
  Soaked result_;
  bool good_ = true;
};

// Makes a group, a part of it, and a few operations, one of which is never waited for. Then it leaves both groups.
void cycle(const SoakOptions& options, int number) {
  const std::uint64_t seed = options.seed * 7 + static_cast<std::uint64_t>(number) * 16;
  Communicator group = options.make_group(fmt::format("cycle {}", number));
  const auto part = group.split(group.rank() % 2);
  Communicator child = *part;
  for (std::uint64_t i = 0; i < 4; ++i) {
    Communicator& where = i % 2 == 0 ? group : child;
    Supply supply(where, false);
    Trial trial(random_problem(seed + i, where.size()), where, supply);
    trial.run();
    if (const auto wrong = trial.find_wrong()) options.on_wrong(*wrong);
  }
  const auto data = group.allocate(4000);
  [[maybe_unused]] const Work dropped =
      group.start_all_reduce(data.get(), data.get(), 1000, comm::DataType::kFloat32, comm::ReduceOp::kSum);
  group.barrier();
}

}  // namespace

Soaked soak_operations(Communicator& world, const SoakOptions& options) { return Operations(world, options).run(); }

Soaked soak_cycles(Communicator& world, const SoakOptions& options) {
  Soaked result;
  const int every = std::max(1, options.cycles / static_cast<int>(kLooks));
  for (int number = 0; number < options.cycles; ++number) {
    cycle(options, number);
    result.count += 1;
    if (number % every != every - 1) continue;
    world.barrier();
    result.looks.push_back(read_resources());
    world.barrier();
  }
  return result;
}

}  // namespace reigen::trial
