#include "reigen/schedule/schedule.h"

#include <fmt/format.h>

#include "base/check.h"

namespace reigen::schedule {
namespace {

void check_count(const char* what, int count) {
  REIGEN_CHECK(count >= 1 && count <= kMostOfEach,
               "[schedule] the number of {} is wrong\n  got: {}   expected: 1 to {}", what, count, kMostOfEach);
}

}  // namespace

const char* to_text(Kind kind) {
  switch (kind) {
    case Kind::kForward: return "F";
    case Kind::kBackward: return "B";
    case Kind::kBackwardInput: return "I";
    case Kind::kBackwardWeight: return "W";
    case Kind::kSendForward: return "SEND_F";
    case Kind::kReceiveForward: return "RECV_F";
    case Kind::kSendBackward: return "SEND_B";
    case Kind::kReceiveBackward: return "RECV_B";
    case Kind::kUnshard: return "UNSHARD";
    case Kind::kReshard: return "RESHARD";
    case Kind::kReduceGrad: return "REDUCE_GRAD";
  }
  return "unknown";
}

std::string to_text(const Action& action) {
  std::string text = fmt::format("{}{}", to_text(action.kind), action.stage);
  if (action.micro_batch != kNone) text += fmt::format(".{}", action.micro_batch);
  if (action.peer != kNone) text += fmt::format("{}{}", is_receive(action.kind) ? '<' : '>', action.peer);
  return text;
}

Action counterpart(const Action& message) {
  Action other{.kind = message.kind, .stage = message.peer, .micro_batch = message.micro_batch, .peer = message.stage};
  switch (message.kind) {
    case Kind::kSendForward: other.kind = Kind::kReceiveForward; break;
    case Kind::kReceiveForward: other.kind = Kind::kSendForward; break;
    case Kind::kSendBackward: other.kind = Kind::kReceiveBackward; break;
    case Kind::kReceiveBackward: other.kind = Kind::kSendBackward; break;
    default: REIGEN_CHECK(false, "[schedule] {} is not a message", to_text(message));
  }
  return other;
}

std::vector<int> looped(int stages, int ranks) {
  check_count("stages", stages);
  check_count("ranks", ranks);
  std::vector<int> placement;
  for (int stage = 0; stage < stages; ++stage) placement.push_back(stage % ranks);
  return placement;
}

std::vector<int> v_shaped(int stages, int ranks) {
  check_count("stages", stages);
  check_count("ranks", ranks);
  std::vector<int> placement;
  for (int stage = 0; stage < stages; ++stage) {
    const bool goes_back = stage / ranks % 2 == 1;
    placement.push_back(goes_back ? ranks - 1 - stage % ranks : stage % ranks);
  }
  return placement;
}

}  // namespace reigen::schedule
