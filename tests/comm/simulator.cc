#include "comm/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

namespace reigen::testing {

namespace {

using comm::schedule::Memory;
using comm::schedule::Step;
using comm::schedule::Transfer;

struct Message {
  std::vector<std::byte> data;
  const std::byte* from;  // only of an eager schedule: its data may also be read when it is received
  std::size_t arrives;
};

class Simulation {
 public:
  Simulation(std::vector<SimulatedRank>& ranks, comm::DataType type, comm::ReduceOp op)
      : ranks_(ranks), type_(type), op_(op), element_(comm::size_of(type)), state_(ranks.size()) {
    for (std::size_t r = 0; r < ranks.size(); ++r) prepare(r);
  }

  SimulatedRun run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        while (advance(r)) moved = true;
      }
    }
    SimulatedRun result;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      EXPECT_EQ(state_[r].step, ranks_[r].schedule.steps.size()) << "rank " << r << " waits for ever";
      result.ranks.push_back(state_[r].count);
      result.depth = std::max(result.depth, state_[r].clock);
      result.outputs.push_back(
          std::move(ranks_[r].in_place && ranks_[r].output.empty() ? ranks_[r].input : ranks_[r].output));
    }
    for (const auto& [pair, queue] : messages_) {
      EXPECT_TRUE(queue.empty()) << queue.size() << " messages of rank " << pair.first << " to " << pair.second;
    }
    return result;
  }

 private:
  struct State {
    std::size_t step = 0;
    std::size_t sent_steps = 0;
    std::size_t clock = 0;
    std::size_t line_free = 0;  // the time at which all earlier messages have left
    std::vector<std::byte> scratch;
    Memory memory;
    Count count;
  };

  void prepare(std::size_t r) {
    SimulatedRank& rank = ranks_[r];
    State& state = state_[r];
    state.scratch.resize(rank.schedule.scratch * element_, std::byte{0xee});
    state.memory = {rank.input.data(), rank.output.data(), state.scratch.data(), element_};
    if (!rank.in_place) return;
    if (rank.output.empty()) {
      state.memory.output = rank.input.data() + rank.output_in_input;
    } else {
      state.memory.input = rank.output.data() + rank.input_in_output;
    }
  }

  void check_apart(const Step& step, const Memory& memory) const {
    for (const Transfer& in : step.receives) {
      const std::byte* a = memory.write(in.range);
      const std::size_t a_bytes = in.range.count * element_;
      for (const Transfer& out : step.sends) {
        const std::byte* b = memory.read(out.range);
        EXPECT_TRUE(a + a_bytes <= b || b + out.range.count * element_ <= a) << "written while it is sent";
      }
      for (const Transfer& other : step.receives) {
        const std::byte* b = memory.write(other.range);
        EXPECT_TRUE(&in == &other || a + a_bytes <= b || b + other.range.count * element_ <= a) << "written twice";
      }
    }
  }

  // Sends messages as early as possible, because a schedule must be right even if a rank runs far ahead.
  void send_ahead(std::size_t r) {
    State& state = state_[r];
    const auto& schedule = ranks_[r].schedule;
    for (; state.sent_steps < schedule.steps.size(); ++state.sent_steps) {
      const Step& step = schedule.steps[state.sent_steps];
      const bool ready =
          std::all_of(step.sends.begin(), step.sends.end(), [&](const Transfer& t) { return t.after <= state.step; });
      if (state.sent_steps > state.step && !(schedule.eager && ready)) return;
      check_apart(step, state.memory);
      for (const Transfer& t : step.sends) {
        const std::byte* from = state.memory.read(t.range);
        messages_[{static_cast<int>(r), t.peer}].push_back(
            {{from, from + t.range.count * element_}, from, std::max(state.clock, state.line_free) + 1});
        state.count.sent += t.range.count;
      }
      if (!step.sends.empty()) state.line_free = std::max(state.clock, state.line_free) + 1;
    }
  }

  bool advance(std::size_t r) {
    State& state = state_[r];
    if (state.step == ranks_[r].schedule.steps.size()) return false;
    const Step& step = ranks_[r].schedule.steps[state.step];
    const int own = static_cast<int>(r);
    send_ahead(r);
    std::map<int, std::size_t> wanted;
    for (const Transfer& t : step.receives) wanted[t.peer] += 1;
    for (const auto& [peer, count] : wanted) {
      if (messages_[{peer, own}].size() < count) return false;
    }
    std::size_t end = state.clock + (step.sends.empty() && step.receives.empty() ? 0 : 1);
    for (const Transfer& t : step.receives) {
      auto& queue = messages_[{t.peer, own}];
      EXPECT_EQ(queue.front().data.size(), t.range.count * element_);
      const bool eager = ranks_[static_cast<std::size_t>(t.peer)].schedule.eager;
      std::memcpy(state.memory.write(t.range), eager ? queue.front().from : queue.front().data.data(),
                  std::min(queue.front().data.size(), t.range.count * element_));
      end = std::max(end, queue.front().arrives);
      queue.pop_front();
      state.count.received += t.range.count;
    }
    for (const auto& local : step.locals) {
      comm::schedule::run(local, state.memory, type_, op_, static_cast<int>(ranks_.size()));
    }
    state.clock = end;
    if (!step.sends.empty() || !step.receives.empty()) state.count.steps += 1;
    state.step += 1;
    return true;
  }

  std::vector<SimulatedRank>& ranks_;
  const comm::DataType type_;
  const comm::ReduceOp op_;
  const std::size_t element_;
  std::vector<State> state_;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;
};

}  // namespace

SimulatedRun simulate(std::vector<SimulatedRank> ranks, comm::DataType type, comm::ReduceOp op) {
  return Simulation(ranks, type, op).run();
}

}  // namespace reigen::testing
