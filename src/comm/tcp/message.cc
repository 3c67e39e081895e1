#include "comm/tcp/message.h"

#include "base/check.h"
#include "comm/call/mismatch_reports.h"

namespace reigen::comm::tcp {

std::string Message::describe() const { return describe_message(group_.options(), number_, call_); }

void Message::check(bool nothing_comes, std::chrono::nanoseconds waited) const {
  group_.check_message(call_.root, nothing_comes, describe(), waited);
}

// check_peers() runs only in waits of some milliseconds. Two ranks whose messages never wait so long learn from
// throw_if_ended() that the group has ended.
Step Message::advance() {
  if (!is_its_turn()) return Step::kBlocked;
  group_.throw_if_ended(UINT64_MAX);
  try {
    return move();
  } catch (const UnreachableMemory& error) {
    error.throw_for(call_, describe());
  }
}

Send::Send(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.sends++) {
  header_.type = call.type;
  header_.count = call.count;
  header_.tag.assign(call.tag);
}

Step Send::move() {
  if (!queued_) {
    stream().send(&header_, sizeof(header_));
    stream().send(call_.input, call_.bytes());
    queued_ = true;
  }
  if (stream().push()) return Step::kMoved;
  if (!stream().sends_done()) return Step::kBlocked;
  pair_.next_send += 1;
  return Step::kDone;
}

void Recv::compare() const {
  if (header_.mark != kMessageMark) {
    throw BackendError(Report{.what = fmt::format("[recv] rank {} sent what is no message of ours", call_.root),
                              .got = fmt::format("mark {:08x}", header_.mark),
                              .expected = fmt::format("mark {:08x}", kMessageMark),
                              .fix = "start all ranks from one build, on machines with one byte order"},
                       ExitCode::kJobMismatch);
  }
  compare_message(group_.options(), number_, call_, {header_.count, header_.type, header_.tag});
}

Step Recv::move() {
  if (phase_ == Phase::kFirst) {
    stream().receive(&header_, sizeof(header_));
    phase_ = Phase::kHeader;
  }
  if (stream().pull()) return Step::kMoved;
  if (!stream().receives_done()) return Step::kBlocked;
  if (phase_ == Phase::kHeader) {
    compare();
    stream().receive(call_.output, call_.bytes());
    phase_ = Phase::kData;
    return Step::kMoved;
  }
  pair_.next_recv += 1;
  return Step::kDone;
}

}  // namespace reigen::comm::tcp
