// Faults written as sentences: kill(rank(2)).at_step(3). The test's body marks its steps with Rank::step().
#pragma once

#include <chrono>

namespace reigen::testing {

struct rank {
  explicit rank(int number_) : number(number_) {}
  int number;
};

struct Fault {
  enum class Kind { kNone, kKill, kStop, kExit, kThrow, kSleep };
  Kind kind = Kind::kNone;
  int rank = -1;
  int step = 0;
  int code = 0;
  std::chrono::milliseconds pause{0};

  Fault at_step(int number) const {
    Fault fault = *this;
    fault.step = number;
    return fault;
  }
};

inline Fault kill(rank r) { return {.kind = Fault::Kind::kKill, .rank = r.number}; }
inline Fault stop(rank r) { return {.kind = Fault::Kind::kStop, .rank = r.number}; }
inline Fault exit_with(rank r, int code) { return {.kind = Fault::Kind::kExit, .rank = r.number, .code = code}; }
inline Fault throw_from(rank r) { return {.kind = Fault::Kind::kThrow, .rank = r.number}; }
inline Fault delay(rank r, std::chrono::milliseconds pause) {
  return {.kind = Fault::Kind::kSleep, .rank = r.number, .pause = pause};
}

}  // namespace reigen::testing
