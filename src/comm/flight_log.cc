#include "comm/flight_log.h"

#include <string>
#include <utility>
#include <vector>

#include "comm/backend.h"
#include "flight/read.h"
#include "flight/recorder.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {

namespace {

template <typename Code>
std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (std::uint8_t code = 0; code < flight::kNoCode; ++code) {
    const std::string name = name_of(static_cast<Code>(code));
    if (name == "?") break;
    names.push_back(name);
  }
  return names;
}

flight::Vocabulary vocabulary() {
  return {.kinds = names_of_all<OperationKind>(),
          .types = names_of_all<DataType>(),
          .reductions = names_of_all<ReduceOp>()};
}

flight::Outcome outcome_of(const std::exception_ptr& error) {
  switch (cause_of(error).kind) {
    case AbortCause::Kind::kPeerLost: return flight::Outcome::kPeerLost;
    case AbortCause::Kind::kTimeout: return flight::Outcome::kTimeout;
    case AbortCause::Kind::kMismatch: return flight::Outcome::kMismatch;
    case AbortCause::Kind::kLeft:
    case AbortCause::Kind::kAborted: break;
  }
  return flight::Outcome::kAborted;
}

}  // namespace

FlightLog::FlightLog(const GroupOptions& options)
    : recorder_(options.recorder    ? options.recorder
                : options.size == 1 ? flight::Recorder::open_unseen({}, vocabulary())
                                    : open_recorder(options.rank, options.size)),
      group_(recorder_->join(options.name, options.rank, options.size)) {}

std::uint64_t FlightLog::called(const Call& call, std::uint64_t sequence) const {
  flight::What what{.kind = static_cast<std::uint8_t>(call.kind)};
  if (call.kind != OperationKind::kBarrier) what.type = static_cast<std::uint8_t>(call.type);
  if (reduces(call.kind)) what.reduction = static_cast<std::uint8_t>(call.op);
  what.between_two = is_between_two(call.kind);
  if (has_root(call.kind) || what.between_two) what.root = call.root;
  const std::size_t count =
      is_uneven(call.kind) ? begin_of(call.counts, static_cast<int>(call.counts.size())) : call.count;
  return recorder_->called(
      group_,
      {.what = what, .sequence = sequence, .count = count, .bytes = count * size_of(call.type), .tag = call.tag});
}

void FlightLog::started(std::uint64_t ticket, bool at_call) const { recorder_->started(ticket, at_call); }

void FlightLog::completed(std::uint64_t ticket) const { recorder_->ended(ticket, flight::Outcome::kDone); }

void FlightLog::failed(std::uint64_t ticket, const std::exception_ptr& error) const {
  recorder_->ended(ticket, outcome_of(error));
}

std::vector<PastCall> FlightLog::history() const {
  std::vector<PastCall> calls;
  for (flight::ReadOperation& one : flight::read_record(recorder_->record()).operations) {
    calls.push_back({.number = one.ticket,
                     .group = std::move(one.group),
                     .kind = std::move(one.kind),
                     .tag = std::move(one.tag),
                     .bytes = one.bytes,
                     .called = one.called,
                     .started = one.started,
                     .ended = one.ended});
  }
  return calls;
}

std::shared_ptr<flight::Recorder> open_recorder(int rank, int size, const std::string& job, int inherited) {
  return flight::Recorder::open({.rank = rank, .size = size, .job = job}, vocabulary(), inherited);
}

}  // namespace reigen::comm
