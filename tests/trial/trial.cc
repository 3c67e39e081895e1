#include "trial/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "reigen/base/error.h"

namespace reigen::trial {

namespace {

using comm::CallList;
using comm::OperationKind;

constexpr std::size_t kGuard = 64;  // bytes on both sides of a buffer, which no call may change
constexpr std::byte kGuardValue{0x5a};

std::vector<std::size_t> counts_of(const std::vector<Block>& blocks) {
  std::vector<std::size_t> counts;
  for (const Block& block : blocks) counts.push_back(block.count);
  return counts;
}

std::vector<Block> nonsense(std::vector<Block> blocks) {
  for (Block& block : blocks) block.from = kNonsense;
  return blocks;
}

// The bytes of an element, highest first.
std::string bits(const std::byte* at, std::size_t size) {
  std::string text = "0x";
  for (std::size_t i = size; i > 0; --i) text += fmt::format("{:02x}", static_cast<unsigned>(at[i - 1]));
  return text;
}

}  // namespace

std::shared_ptr<void> Supply::take(std::size_t bytes, bool foreign, int slot) {
  const auto make = [&]() -> std::shared_ptr<void> {
    if (!foreign) return world_.allocate(bytes);
    void* data = std::malloc(std::max<std::size_t>(bytes, 1));
    if (data == nullptr) throw std::bad_alloc();
    return {data, [](void* pointer) { std::free(pointer); }};
  };
  if (!keeps_) return make();
  Kept& kept = kept_[{foreign, slot}];
  if (kept.bytes < bytes) {
    kept.block.reset();
    kept.block = make();
    kept.bytes = bytes;
  }
  return kept.block;
}

Trial::Trial(const Problem& problem, Communicator& world, Supply& supply)
    : problem_(problem),
      world_(world),
      ranks_(world.size()),
      rank_(world.rank()),
      element_(comm::size_of(problem.type)),
      foreign_(problem.memory == Memory::kForeign ||
               (problem.memory == Memory::kMixed && (static_cast<std::uint64_t>(rank_) + problem.seed) % 2 == 1)) {
  place(supply);
  fill();
}

void Trial::add_region(std::vector<Block> before, std::vector<Block> after, Supply& supply) {
  const std::size_t bytes = total(after) * element_;
  const std::size_t shift = problem_.seed % 4 * element_;  // aligned to the element only
  auto block = supply.take(bytes + shift + 2 * kGuard, foreign_, static_cast<int>(regions_.size()));
  auto* const data = static_cast<std::byte*>(block.get()) + kGuard + shift;
  regions_.push_back({std::move(block), data, std::move(before), std::move(after)});
}

// In place, the smaller one of input and output is a part of the larger one: this rank's block.
void Trial::place(Supply& supply) {
  const auto mine = static_cast<std::size_t>(rank_);
  auto in = input_blocks(problem_, ranks_, rank_);
  auto out = output_blocks(problem_, ranks_, rank_);
  if (problem_.kind == OperationKind::kBroadcast) {
    add_region(in.empty() ? nonsense(out) : in, out, supply);
    input_ = output_ = regions_[0].data;
  } else if (!problem_.in_place || in.empty() || out.empty()) {
    const bool gives = !in.empty();
    const bool takes = !out.empty();
    add_region(in, in, supply);
    add_region(nonsense(out), out, supply);
    if (gives) input_ = regions_[0].data;
    if (takes) output_ = regions_[1].data;
  } else if (in.size() > out.size()) {
    const std::size_t begin = begin_of(in, mine);
    auto after = in;
    after[mine] = out[0];
    add_region(in, after, supply);
    input_ = regions_[0].data;
    output_ = input_ + begin * element_;
  } else if (out.size() > in.size()) {
    auto before = nonsense(out);
    before[mine] = in[0];
    add_region(before, out, supply);
    output_ = regions_[0].data;
    input_ = output_ + begin_of(out, mine) * element_;
  } else {
    add_region(in, out, supply);
    input_ = output_ = regions_[0].data;
  }
}

void Trial::fill() {
  for (const Region& region : regions_) {
    std::byte* at = region.data;
    std::fill(at - kGuard, at, kGuardValue);
    for (const Block& block : region.before) {
      const auto pattern = pattern_of(problem_, ranks_, block);
      const std::size_t bytes = block.count * element_;
      for (std::size_t done = 0; done < bytes; done += pattern.size()) {
        std::memcpy(at + done, pattern.data(), std::min(pattern.size(), bytes - done));
      }
      at += bytes;
    }
    std::fill(at, at + kGuard, kGuardValue);
  }
}

CallList Trial::call_uneven() const {
  const auto& p = problem_;
  const comm::CallOptions o{.factor = factor_of(p, rank_)};
  CallList calls;
  std::vector<std::size_t> counts;
  for (int q = 0; q < ranks_; ++q) {
    const bool pairwise = p.kind == OperationKind::kAllToAllV;
    counts.push_back(block_count(p, ranks_, pairwise ? rank_ : q, q));
  }
  switch (p.kind) {
    case OperationKind::kAllGatherV: calls.all_gather_v(input_, output_, counts, p.type, o); break;
    case OperationKind::kReduceScatterV: calls.reduce_scatter_v(input_, output_, counts, p.type, p.op, o); break;
    case OperationKind::kGatherV: calls.gather_v(input_, output_, counts, p.type, p.root, o); break;
    case OperationKind::kScatterV: calls.scatter_v(input_, output_, counts, p.type, p.root, o); break;
    default: calls.all_to_all_v(input_, counts, output_, counts_of(output_blocks(p, ranks_, rank_)), p.type, o); break;
  }
  return calls;
}

CallList Trial::call() const {
  const auto& p = problem_;
  if (comm::is_uneven(p.kind)) return call_uneven();
  const comm::CallOptions o{.factor = factor_of(p, rank_)};
  CallList calls;
  switch (p.kind) {
    case OperationKind::kAllReduce: calls.all_reduce(input_, output_, p.count, p.type, p.op, o); break;
    case OperationKind::kReduceScatter: calls.reduce_scatter(input_, output_, p.count, p.type, p.op, o); break;
    case OperationKind::kAllGather: calls.all_gather(input_, output_, p.count, p.type, o); break;
    case OperationKind::kBroadcast: calls.broadcast(output_, p.count, p.type, p.root, o); break;
    case OperationKind::kReduce: calls.reduce(input_, output_, p.count, p.type, p.op, p.root, o); break;
    case OperationKind::kGather: calls.gather(input_, output_, p.count, p.type, p.root, o); break;
    case OperationKind::kScatter: calls.scatter(input_, output_, p.count, p.type, p.root, o); break;
    case OperationKind::kAllToAll: calls.all_to_all(input_, output_, p.count, p.type, o); break;
    default: calls.barrier(o); break;
  }
  return calls;
}

void Trial::add_send(CallList& calls) const { calls.send(input_, problem_.count, problem_.type, (rank_ + 1) % ranks_); }

void Trial::add_recv(CallList& calls) const {
  calls.recv(output_, problem_.count, problem_.type, (rank_ + ranks_ - 1) % ranks_);
}

std::vector<CallList> Trial::calls() const {
  if (problem_.kind != OperationKind::kSend) return {call()};
  std::vector<CallList> calls(2);
  // Blocking calls wait for each other, so of two neighbours one sends while the other receives.
  const bool sends_first = rank_ % 2 == 0;
  add_send(calls[sends_first ? 0 : 1]);
  add_recv(calls[sends_first ? 1 : 0]);
  return calls;
}

CallList Trial::calls_together() const {
  CallList calls;
  if (problem_.kind != OperationKind::kSend) {
    calls = call();
  } else {
    add_send(calls);
    add_recv(calls);
  }
  calls.barrier();
  return calls;
}

std::vector<Work> Trial::start(comm::Progress progress) {
  std::vector<Work> works;
  for (const CallList& list : calls()) works.push_back(world_.start(list, progress));
  return works;
}

void Trial::run() {
  switch (problem_.manner) {
    case Manner::kBlocking:
      for (const CallList& list : calls()) world_.run(list);
      break;
    case Manner::kAsync:
      for (const Work& work : start(comm::Progress::kThread)) work.wait();
      break;
    case Manner::kPolled:
      for (const Work& work : start(comm::Progress::kCaller)) {
        while (!work.is_completed()) {
          world_.poll();
          std::this_thread::yield();  // there may be more ranks than cores
        }
        work.wait();
      }
      break;
    case Manner::kGrouped:
      if (problem_.seed % 2 == 0)
        world_.start(calls_together()).wait();
      else
        world_.run(calls_together());
      break;
  }
}

std::optional<std::string> Trial::find_wrong(const Region& region, const Block& block, std::size_t begin) const {
  const auto pattern = pattern_of(problem_, ranks_, block);
  const std::byte* const data = region.data + begin * element_;
  const std::size_t bytes = block.count * element_;
  for (std::size_t done = 0; done < bytes; done += pattern.size()) {
    const std::size_t piece = std::min(pattern.size(), bytes - done);
    if (std::memcmp(data + done, pattern.data(), piece) == 0) continue;
    for (std::size_t at = 0; at < piece; at += element_) {
      if (std::memcmp(data + done + at, pattern.data() + at, element_) == 0) continue;
      return fmt::format("rank {} of {}: {}: element {} of the block from {} to {}: got {}, expected {}", rank_, ranks_,
                         describe(problem_), (done + at) / element_, block.from, block.to,
                         bits(data + done + at, element_), bits(pattern.data() + at, element_));
    }
  }
  return std::nullopt;
}

std::optional<std::string> Trial::find_wrong() const {
  for (const Region& region : regions_) {
    std::size_t begin = 0;
    for (const Block& block : region.after) {
      if (auto wrong = find_wrong(region, block, begin)) return wrong;
      begin += block.count;
    }
    const std::byte* const end = region.data + begin * element_;
    const auto is_guard = [](std::byte value) { return value == kGuardValue; };
    if (!std::all_of(region.data - kGuard, region.data, is_guard) || !std::all_of(end, end + kGuard, is_guard)) {
      return fmt::format("rank {} of {}: {}: written outside of the buffer", rank_, ranks_, describe(problem_));
    }
  }
  return std::nullopt;
}

}  // namespace reigen::trial
