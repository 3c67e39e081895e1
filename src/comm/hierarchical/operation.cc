#include "comm/hierarchical/operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/call/mismatch_reports.h"
#include "comm/call/signature.h"

namespace reigen::comm::hierarchical {

namespace {

// The stages of a plan (plan.h) make calls in smaller groups. The tag of such a call is a hash of the user's call, and
// at most this many characters of the user's tag.
constexpr int kTagShown = 38;
constexpr auto kNamedWithin = std::chrono::seconds(2);  // time for the control channel to find the calls that differ

Part& part_of(Group& group, int other) {
  return group.layout.machine_of(other) == group.layout.machine ? group.inside[0] : group.everybody;
}

bool is_over_network(Level level) { return level == Level::kBetween || level == Level::kEverybody; }

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
  if (!group_.in_flight.try_begin(call_, sequence_)) return false;
  try {
    group_.throw_if_ended([this] { return describe(); });
    const auto hash = static_cast<std::uint32_t>(hash_of(signature_of(call_), sequence_));
    const std::string tag = fmt::format("{:08x} {:.{}}", hash, call_.tag, kTagShown);
    stages_ = plan(call_, group_.layout, tag,
                   [this](int area, std::size_t bytes) { return group_.scratch(lane_of(sequence_), area, bytes); });
  } catch (...) {
    keep_or_throw();
  }
  return true;
}

// Called in a catch block. Rethrows the exception if this collective is the first in flight. Otherwise keeps the
// exception until this collective is the first.
void Collective::keep_or_throw() {
  if (is_first()) throw;
  error_ = std::current_exception();
}

// MPI requires that all ranks begin its collectives in the same order. So only the collective that has the turn
// (network_turn) may begin calls over the network. When it has begun all these calls, pass_turn() gives the turn to the
// next collective. A call counts as begun after its backend has returned kPassedOn or kDone, because the next call may
// start then.
void Collective::pass_turn() {
  if (group_.network_turn != sequence_) return;
  const auto begin = stages_.begin() + static_cast<std::ptrdiff_t>(stage_ + (has_begun_ ? 1 : 0));
  if (std::none_of(begin, stages_.end(), [](const Stage& stage) { return is_over_network(stage.level); }))
    group_.network_turn += 1;
}

void Collective::next_stage() {
  running_.reset();
  posted_ = has_begun_ = false;
  group_.waits_in[lane_of(sequence_)] = nullptr;
  stage_ += 1;
}

// Starts, posts or advances the call of the current stage, in the smaller group (Part) that makes this call. Also
// returns kBlocked while a different collective has the turn (pass_turn()).
Step Collective::advance_stage() {
  Part& part = part_of_stage();
  if (!running_) {
    if (is_over_network(stages_[stage_].level) && group_.network_turn != sequence_) return Step::kBlocked;
    running_ = part.backend->start(stages_[stage_].call, part.next++);
    group_.waits_in[lane_of(sequence_)] = &part;
  }
  if (!posted_) {
    if (!running_->try_post()) return Step::kBlocked;
    posted_ = true;
  }
  const Step step = running_->advance();
  has_begun_ = has_begun_ || step == Step::kPassedOn || step == Step::kDone;
  pass_turn();
  return step;
}

Step Collective::run_stage() {
  if (stages_[stage_].level == Level::kHere) {
    stages_[stage_].work();
    return Step::kDone;
  }
  Step step = Step::kBlocked;
  group_.translated(
      part_of_stage(), [this] { return describe(); }, [&] { step = advance_stage(); });
  return step;
}

Step Collective::advance() {
  if (error_ && !is_first()) return Step::kBlocked;
  if (differs_since_) return Step::kBlocked;
  try {
    if (error_) std::rethrow_exception(error_);
    return move();
  } catch (const PartMismatch& error) {
    if (is_first()) {
      note_difference(error);
    } else {
      error_ = std::current_exception();
    }
  } catch (...) {
    keep_or_throw();
  }
  return Step::kBlocked;
}

Step Collective::move() {
  pass_turn();
  if (is_over()) {
    if (!is_first()) return Step::kPassedOn;
    group_.in_flight.complete_first();
    group_.note_algorithm(taken_);
    return Step::kDone;
  }
  const Step step = run_stage();
  if (step == Step::kMoved) return step;
  if (step != Step::kDone) return Step::kPassedOn;
  if (stages_[stage_].level != Level::kHere) {
    taken_ += (taken_.empty() ? "" : "+") + part_of_stage().backend->last_algorithm();
  }
  next_stage();
  return Step::kMoved;
}

// Keeps the error, and asks the control channel which calls differ. A later check_peers() throws an error that names
// these calls. If the channel finds nothing within kNamedWithin, check_peers() throws the kept error.
void Collective::note_difference(const CollectiveMismatch& error) const {
  if (differs_since_) return;
  differs_since_ = Deadline::Clock::now();
  difference_ = error.what();
  group_.control.look_for_mismatch();
}

void Collective::check_peers(std::chrono::nanoseconds waited) const {
  // If the control channel finds no difference within kNamedWithin, the program made the same call on all ranks. The
  // difference is then in the calls that Reigen itself made in the part (smaller group), and the error of the part
  // describes it.
  if (differs_since_ && Deadline::Clock::now() - *differs_since_ > kNamedWithin) throw CollectiveMismatch(difference_);
  group_.control.check(call_, sequence_, waited);
  if (!running_ || differs_since_) return;
  const Part& part = part_of_stage();
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

// The rank that ended the group need not belong to the part (smaller group) of this message, so check all parts.
void Message::check_peers(std::chrono::nanoseconds waited) const {
  group_.throw_if_ended([this] { return describe(); });
  group_.control.check_message(call_.root, describe(), waited);
  group_.translated(
      part_, [this] { return describe(); }, [&] { part_.backend->check_peers(*operation_, waited); });
}

}  // namespace reigen::comm::hierarchical
