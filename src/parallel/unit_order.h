// Which units a backward has behind it.
//
// Autograd evaluates what is newest first, so when it comes to the end of a call, all that began behind that end is
// over: every gradient that it will ever get is there, and nothing reads its weights any more. That follows from the
// order of calls alone, which is the same on all ranks, and not from which weights a rank's loss reaches.
//
// Calls are counted until a backward has run and the next forward begins: several forwards may share a backward, or
// have one each. Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace reigen::parallel {

class UnitOrder {
 public:
  explicit UnitOrder(std::size_t units) : units_(units), calls_(std::make_shared<Calls>(units)) {}

  void begin_forward() {
    entered_ = {};
    if (has_entered_) calls_ = std::make_shared<Calls>(units_);
    has_entered_ = false;
  }

  struct Calls {
    explicit Calls(std::size_t units) : first_begin(units), last_end(units) {}
    std::vector<std::size_t> first_begin;  // of a unit's calls; 0: there is none
    std::vector<std::size_t> last_end;
    std::size_t count = 0;  // of begins and ends
  };
  struct End {
    std::shared_ptr<const Calls> calls;
    std::size_t number = 0;
  };
  void begin_call(std::size_t unit) {
    const std::size_t number = ++calls_->count;
    if (calls_->first_begin[unit] == 0) calls_->first_begin[unit] = number;
  }
  End end_call(std::size_t unit) {
    calls_->last_end[unit] = ++calls_->count;
    return last_end(unit);
  }
  // Of a unit that is computed again, which does not know for which of its calls: behind the last is less.
  End last_end(std::size_t unit) const { return {calls_, calls_->last_end[unit]}; }

  // Backward is at the end of that call.
  void enter(const End& end) {
    entered_ = end;
    has_entered_ = true;
  }
  void leave() { entered_ = {}; }
  bool is_behind(std::size_t unit) const {
    return entered_.calls && unit < units_ && entered_.calls->first_begin[unit] > entered_.number;
  }

 private:
  std::size_t units_;
  std::shared_ptr<Calls> calls_;
  End entered_;
  bool has_entered_ = false;  // since calls_ began
};

}  // namespace reigen::parallel
