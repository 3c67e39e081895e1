// Which units a backward has behind it.
//
// Autograd evaluates what was made last first, so when it comes to the end of a call (call_end.h), all that began
// behind that end is over. That follows from the order of calls alone, which is the same on all ranks, and not from
// which weights a rank's loss reaches.
//
// Calls are counted until a backward that adds gradients to all weights has ended and the next forward begins: several
// forwards may share a backward, or have one each, which then knows less of what is behind it.
// Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace reigen::parallel {

class UnitOrder {
 public:
  explicit UnitOrder(std::size_t units) : units_(units), calls_(std::make_shared<Calls>(units)) {}

  void begin_forward() {
    constexpr std::size_t kMost = 1 << 20;  // of forwards that no backward ends
    entered_ = {};
    if (has_ended_ || calls_->count > kMost) calls_ = std::make_shared<Calls>(units_);
    has_ended_ = false;
  }

  struct Call {  // begins and ends are numbered from 1
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Calls {
    explicit Calls(std::size_t units) : of_unit(units) {}
    std::vector<std::vector<Call>> of_unit;  // those that have ended, as they ended
    std::size_t count = 0;
  };
  struct End {
    std::shared_ptr<const Calls> calls;
    std::size_t number = 0;  // 0: not known
  };
  std::size_t begin_call() { return ++calls_->count; }
  End end_call(std::size_t unit, std::size_t begin) {
    calls_->of_unit[unit].push_back({begin, ++calls_->count});
    return {calls_, calls_->count};
  }
  // For a unit that is computed again, which does not know for which of its calls: less is behind the last.
  End last_end(std::size_t unit) const {
    const std::vector<Call>& calls = calls_->of_unit[unit];
    return {calls_, calls.empty() ? 0 : calls.back().end};
  }

  // Backward is at the end of that call.
  void enter(const End& end) { entered_ = end; }
  void end_backward() {
    entered_ = {};
    has_ended_ = true;
  }

  // All of its calls are: no gradient of it is still to come.
  bool is_behind(std::size_t unit) const {
    const std::vector<Call>* const calls = known(unit);
    return calls != nullptr &&
           std::all_of(calls->begin(), calls->end(), [&](const Call& call) { return call.begin > entered_.number; });
  }
  // One of its calls is, and none is under way: nothing reads its weights before the end of another one.
  bool has_passed(std::size_t unit) const {
    const std::vector<Call>* const calls = known(unit);
    if (calls == nullptr) return false;
    bool any = false;
    for (const Call& call : *calls) {
      if (call.begin <= entered_.number && call.end > entered_.number) return false;
      any = any || call.begin > entered_.number;
    }
    return any;
  }

 private:
  const std::vector<Call>* known(std::size_t unit) const {
    if (!entered_.calls || entered_.number == 0 || unit >= units_) return nullptr;
    const std::vector<Call>& calls = entered_.calls->of_unit[unit];
    return calls.empty() ? nullptr : &calls;
  }

  std::size_t units_;
  std::shared_ptr<Calls> calls_;
  End entered_;
  bool has_ended_ = false;  // a backward, since calls_ began
};

}  // namespace reigen::parallel
