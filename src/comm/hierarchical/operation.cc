#include "comm/hierarchical/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/call/mismatch_reports.h"
#include "comm/call/signature.h"

namespace reigen::comm::hierarchical {

namespace {

constexpr int kTagShown = 38;                           // characters of the user's tag after the hash of the call
constexpr auto kNamedWithin = std::chrono::seconds(2);  // how long the control channel may take to name a mismatch

Part& part_of(Group& group, int other) {
  return group.layout.machine_of(other) == group.layout.machine ? group.inside : group.everybody;
}

}  // namespace

Collective::Collective(Group& group, const Call& call, std::uint64_t sequence)
    : group_(group), call_(call), sequence_(sequence) {
  group_.control.called(call_, sequence_);
}

std::string Collective::describe() const {
  return fmt::format("[{}] rank {} of {} group \"{}\" #{} {}", name_of(call_.kind), group_.options.rank,
                     group_.options.size, group_.options.name, sequence_, comm::describe(signature_of(call_)));
}

bool Collective::try_post() {
  if (group_.completed != sequence_) return false;
  group_.throw_if_ended([this] { return describe(); });
  const auto hash = static_cast<std::uint32_t>(hash_of(signature_of(call_), sequence_));
  const std::string tag = fmt::format("{:08x} {:.{}}", hash, call_.tag, kTagShown);
  stages_ =
      plan(call_, group_.layout, tag, [this](int area, std::size_t bytes) { return group_.scratch(area, bytes); });
  begin_stage();
  return true;
}

void Collective::begin_stage() {
  running_.reset();
  posted_ = false;
  group_.current = nullptr;
  if (stage_ == stages_.size() || stages_[stage_].level == Level::kHere) return;
  Part& part = group_.part(stages_[stage_].level);
  running_ = part.backend->start(stages_[stage_].call, part.next++);
  group_.current = &part;
}

Step Collective::advance_stage() {
  if (!posted_) {
    if (!running_->try_post()) return Step::kBlocked;
    posted_ = true;
  }
  return running_->advance();
}

Step Collective::advance() {
  if (stage_ == stages_.size()) {
    group_.completed += 1;
    group_.note_algorithm(taken_);
    return Step::kDone;
  }
  if (differs_since_) return Step::kBlocked;
  Stage& stage = stages_[stage_];
  Step step = Step::kDone;
  if (stage.level == Level::kHere) {
    stage.work();
  } else {
    try {
      group_.translated(
          group_.part(stage.level), [this] { return describe(); }, [&] { step = advance_stage(); });
    } catch (const PartMismatch& error) {
      note_difference(error);
      return Step::kBlocked;
    }
  }
  if (step == Step::kMoved) return step;
  if (step != Step::kDone) return Step::kBlocked;
  if (stage.level != Level::kHere) {
    taken_ += (taken_.empty() ? "" : "+") + group_.part(stage.level).backend->last_algorithm();
  }
  stage_ += 1;
  begin_stage();
  return Step::kMoved;
}

// The next check_peers() throws the error, and names the calls that differ.
void Collective::note_difference(const CollectiveMismatch& error) const {
  if (differs_since_) return;
  differs_since_ = Deadline::Clock::now();
  difference_ = error.what();
  group_.control.look_for_mismatch();
}

void Collective::check_peers(std::chrono::nanoseconds waited) const {
  // If the control channel has found no difference in this time, the users made the same call on all ranks. Then the
  // error of the part must say what differs.
  if (differs_since_ && Deadline::Clock::now() - *differs_since_ > kNamedWithin) throw CollectiveMismatch(difference_);
  group_.control.check(call_, sequence_, waited);
  if (!running_ || differs_since_) return;
  const Part& part = *group_.current;
  try {
    group_.translated(
        part, [this] { return describe(); }, [&] { part.backend->check_peers(*running_, waited); });
  } catch (const PartMismatch& error) {
    note_difference(error);
  }
}

Message::Message(Group& group, const Call& call)
    : group_(group),
      call_(call),
      number_(group.next_message[{call.kind, call.root}]++),
      part_(part_of(group, call.root)),
      of_part_(call) {
  of_part_.root = static_cast<int>(std::find(part_.ranks.begin(), part_.ranks.end(), call.root) - part_.ranks.begin());
  operation_ = part_.backend->start(of_part_, 0);
  part_.messages.fetch_add(1);
}

Message::~Message() { part_.messages.fetch_sub(1); }

std::string Message::describe() const { return describe_message(group_.options, number_, call_); }

Step Message::advance() {
  Step step = Step::kBlocked;
  group_.translated(
      part_, [this] { return describe(); }, [&] { step = operation_->advance(); });
  return step;
}

// The rank that ended the group need not belong to the part of this message, so ask all parts.
void Message::check_peers(std::chrono::nanoseconds waited) const {
  group_.throw_if_ended([this] { return describe(); });
  group_.control.check_message(call_.root, describe(), waited);
  group_.translated(
      part_, [this] { return describe(); }, [&] { part_.backend->check_peers(*operation_, waited); });
}

}  // namespace reigen::comm::hierarchical
