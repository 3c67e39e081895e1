#include "comm/tcp/collective.h"

#include <algorithm>

#include "base/check.h"
#include "comm/call/mismatch_reports.h"
#include "comm/reduce/reduce.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::tcp {

namespace {

// After the first header that differs, this rank waits this long for the missing headers. With all headers, all ranks
// name the same two calls in their errors.
constexpr auto kMismatchGrace = std::chrono::milliseconds(100);
// A transfer uses several connections only if it has at least this many bytes for each of them.
constexpr std::size_t kStripeBytes = std::size_t{64} << 10;

}  // namespace

Collective::Collective(Group& group, const Call& call, std::uint64_t sequence)
    : group_(group),
      call_(call),
      sequence_(sequence),
      header_(header_of(call, sequence)),
      partners_(static_cast<std::size_t>(group.size())) {
  partners_[static_cast<std::size_t>(group.rank())].verified = true;
}

std::string Collective::describe() const {
  return fmt::format("[{}] rank {} of {} group \"{}\" #{} {}", name_of(call_.kind), group_.rank(), group_.size(),
                     group_.options().name, sequence_, comm::describe(header_.call));
}

// Chooses the algorithm and the number of pieces. Both are part of the header, because ranks that choose differently
// would misread each other's data.
const schedule::Algorithm& Collective::choose(schedule::Problem& problem) {
  const std::size_t element = size_of(call_.type);
  const schedule::Algorithm& algorithm =
      choose_schedule(group_.algorithms(), call_.kind, whole_bytes(call_, group_.size()), group_.size());
  algorithm_ = &algorithm;
  const int wanted = group_.options().segments;
  problem.segments =
      wanted > 0 ? static_cast<std::size_t>(wanted) : schedule::segments_for(algorithm, problem, element, kPieceBytes);
  header_.algorithm = static_cast<std::uint64_t>(&algorithm - schedule::algorithms(call_.kind).data());
  header_.segments = static_cast<std::uint32_t>(problem.segments);
  for (std::size_t q = 0; q < partners_.size(); ++q) {
    Partner& partner = partners_[q];
    partner.own = header_;
    if (call_.kind != OperationKind::kAllToAllV) continue;
    partner.own.gives = call_.counts[q];
    partner.own.takes = call_.arrives[q];
  }
  Partner& self = partners_[static_cast<std::size_t>(group_.rank())];
  self.header = self.own;
  if (!fits(self)) note_difference(self);
  return algorithm;
}

bool Collective::fits(const Partner& partner) const {
  return same_call(partner.own, partner.header) && partner.own.gives == partner.header.takes &&
         partner.own.takes == partner.header.gives;
}

void Collective::note_difference(Partner& partner) {
  partner.verified = false;
  partner.differs = true;
  if (!differs_since_) differs_since_ = Deadline::Clock::now();
}

// Returns this rank's input times the factor of the call. An all_reduce stores the product in its output, and then runs
// in place. Other operations store it in `into`.
const std::byte* Collective::scaled_input(std::byte* into) const {
  const auto* const input = static_cast<const std::byte*>(call_.input);
  if (call_.factor == 1) return input;
  std::byte* const output = call_.kind == OperationKind::kAllReduce ? static_cast<std::byte*>(call_.output) : into;
  reduce::run({.inputs = &input,
               .outputs = &output,
               .input_count = 1,
               .output_count = 1,
               .count = extent_of(call_, group_.rank(), group_.size()).input,
               .type = call_.type,
               .op = call_.op,
               .factors = &call_.factor});
  return output;
}

void Collective::plan() {
  schedule::Problem problem = schedule::problem_of(call_, group_.rank(), group_.size());
  const schedule::Algorithm& algorithm = choose(problem);
  const std::size_t element = size_of(call_.type);
  schedule_ = algorithm.make(problem);
  for (std::size_t i = 0; i < schedule_.steps.size(); ++i) {
    for (const auto& t : schedule_.steps[i].sends) partners_[static_cast<std::size_t>(t.peer)].last_step = i + 1;
    for (const auto& t : schedule_.steps[i].receives) partners_[static_cast<std::size_t>(t.peer)].last_step = i + 1;
  }
  const bool elsewhere = call_.factor != 1 && call_.kind != OperationKind::kAllReduce;
  const std::size_t scaled = elsewhere ? extent_of(call_, group_.rank(), group_.size()).input : 0;
  std::byte* const scratch = group_.scratch(lane_, (schedule_.scratch + scaled) * element);
  memory_ = {scaled_input(scratch + schedule_.scratch * element), static_cast<std::byte*>(call_.output), scratch,
             element};
}

bool Collective::try_post() {
  if (!group_.in_flight().try_begin(call_, sequence_)) return false;
  if (group_.in_flight().is_first(sequence_)) hear_of_end();
  plan();
  posted_ = true;
  for (int q = 0; q < group_.size(); ++q) {
    if (q == group_.rank()) continue;
    Stream& stream = streams(q).front();
    Partner& partner = partners_[static_cast<std::size_t>(q)];
    stream.send(&partner.own, sizeof(Header));
    stream.receive(&partner.header, sizeof(Header));
  }
  begin_step();
  try {
    push_all();
  } catch (const UnreachableMemory& error) {
    error.throw_for(call_, describe());
  }
  return true;
}

// Throws if another rank ended the group before that rank had completed this call. Runs only when this call is the
// first in flight. Before that, an earlier call may still complete although the group has ended.
void Collective::hear_of_end() {
  if (heard_) return;
  heard_ = true;
  group_.throw_if_ended(sequence_);
}

void Collective::push_all() {
  for (int i = 1; i < group_.size(); ++i) {
    for (Stream& stream : streams((group_.rank() + i) % group_.size())) stream.push();
  }
}

// Queues the sends of this step. In an eager schedule, also queues the sends of later steps whose data are ready
// (Transfer::after).
void Collective::send_ahead() {
  for (; sent_steps_ < schedule_.steps.size(); ++sent_steps_) {
    const auto& sends = schedule_.steps[sent_steps_].sends;
    const bool ready = sent_steps_ <= step_ ||
                       (schedule_.eager && std::all_of(sends.begin(), sends.end(),
                                                       [this](const auto& send) { return send.after <= step_; }));
    if (!ready) return;
    for (const auto& transfer : sends) {
      const auto connections = streams(transfer.peer);
      const std::size_t stripes = stripes_of(transfer, connections.size());
      for (std::size_t i = 0; i < stripes; ++i) {
        const auto part = schedule::piece(transfer.range, i, stripes);
        connections[i].send(memory_.read(part), part.count * memory_.element);
      }
    }
  }
}

void Collective::begin_step() {
  unexpected_ = 0;
  send_ahead();
  if (is_over()) return;
  for (int q = 0; q < group_.size(); ++q) {
    if (partners_[static_cast<std::size_t>(q)].verified) expect_from(q);
  }
  for (const auto& transfer : schedule_.steps[step_].receives) {
    if (!partners_[static_cast<std::size_t>(transfer.peer)].verified) unexpected_ += 1;
  }
}

// The number of connections over which a transfer is divided. The sender and the receiver compute the same number.
std::size_t Collective::stripes_of(const schedule::Transfer& transfer, std::size_t connections) const {
  return transfer.range.count * memory_.element < kStripeBytes * connections ? 1 : connections;
}

// Queues the receives of this step from `rank`.
void Collective::expect_from(int rank) {
  for (const auto& transfer : schedule_.steps[step_].receives) {
    if (transfer.peer != rank) continue;
    const auto connections = streams(rank);
    const std::size_t stripes = stripes_of(transfer, connections.size());
    for (std::size_t i = 0; i < stripes; ++i) {
      const auto part = schedule::piece(transfer.range, i, stripes);
      connections[i].receive(memory_.write(part), part.count * memory_.element);
    }
  }
}

// Called when the header of `rank` has arrived. Compares it with this rank's header.
void Collective::read_header(int rank) {
  Partner& partner = partners_[static_cast<std::size_t>(rank)];
  group_.note_call(rank, partner.header);
  if (!fits(partner)) return note_difference(partner);
  partner.verified = true;
  if (is_over()) return;
  for (const auto& transfer : schedule_.steps[step_].receives) {
    if (transfer.peer == rank) unexpected_ -= 1;
  }
  expect_from(rank);
}

bool Collective::move_data(int rank) {
  Partner& partner = partners_[static_cast<std::size_t>(rank)];
  bool moved = false;
  for (Stream& stream : streams(rank)) {
    moved |= stream.push();
    if (partner.differs || (!partner.verified && &stream != &streams(rank).front())) continue;
    moved |= stream.pull();
  }
  if (!partner.verified && !partner.differs && streams(rank).front().receives_done()) {
    read_header(rank);
    moved = true;
  }
  return moved;
}

bool Collective::step_is_complete() const {
  if (unexpected_ > 0) return false;
  const bool waits_for_sends = !schedule_.eager || is_over();
  for (int q = 0; q < group_.size(); ++q) {
    const bool verified = partners_[static_cast<std::size_t>(q)].verified;
    for (const Stream& stream : streams(q)) {
      if ((waits_for_sends && !stream.sends_done()) || (verified && !stream.receives_done())) return false;
    }
  }
  return true;
}

bool Collective::has_every_header() const {
  return std::all_of(partners_.begin(), partners_.end(), [](const Partner& p) { return p.verified || p.differs; });
}

// The error names two ranks. Rank A is the lowest rank whose header has arrived. Rank B is the lowest rank whose call
// differs from the call of rank A. When all headers have arrived, every rank names the same two ranks.
void Collective::throw_mismatch() const {
  int first = -1;
  for (int q = 0; q < group_.size(); ++q) {
    const Partner& partner = partners_[static_cast<std::size_t>(q)];
    if (!partner.verified && !partner.differs) continue;
    if (first < 0) first = q;
    const Header& a = partners_[static_cast<std::size_t>(first)].header;
    const Header& b = partner.header;
    if (same_call(a, b)) continue;
    throw CollectiveMismatch(
        calls_differ(group_.options().name, sequence_, what_differs(a, b), {first, a.call}, {q, b.call}));
  }
  // All headers describe the same call. So it is an all_to_all_v in which the counts of two ranks do not match.
  for (int q = 0; q < group_.size(); ++q) {
    const Partner& partner = partners_[static_cast<std::size_t>(q)];
    if (!partner.differs) continue;
    const bool theirs = partner.header.gives != partner.own.takes;
    throw_exchange_differs(group_.options().name, sequence_,
                           theirs ? Exchange{q, partner.header.gives, group_.rank(), partner.own.takes}
                                  : Exchange{group_.rank(), partner.own.gives, q, partner.header.takes});
  }
  throw InternalError("a call that differs was not found again");
}

Step Collective::advance() {
  try {
    return move();
  } catch (const UnreachableMemory& error) {
    error.throw_for(call_, describe());
  }
}

Step Collective::move() {
  bool moved = false;
  for (int q = 0; q < group_.size(); ++q) {
    if (q != group_.rank()) moved |= move_data(q);
  }
  // Only the first call in flight reports a mismatch. A mismatch of the first call may cause mismatches of later calls.
  const bool is_first = group_.in_flight().is_first(sequence_);
  if (is_first) hear_of_end();
  if (differs_since_ && is_first && has_every_header()) throw_mismatch();
  // If a call of another rank differs, the schedules of the ranks may not match, so no further step runs.
  if (!is_over() && !differs_since_ && step_is_complete()) {
    for (const auto& local : schedule_.steps[step_].locals) {
      schedule::run(local, memory_, call_.type, call_.op, group_.size());
    }
    step_ += 1;
    begin_step();
    moved = true;
  }
  if (is_first && is_over() && has_every_header() && step_is_complete()) {
    group_.last_algorithm().store(algorithm_, std::memory_order_relaxed);
    group_.in_flight().complete_first();
    return Step::kDone;
  }
  return moved ? Step::kMoved : Step::kPassedOn;
}

// The ranks that this call still needs: those whose header is missing or differs, and those with which this step has
// unfinished transfers or a later step has transfers.
std::vector<int> Collective::needed() const {
  std::vector<int> ranks;
  for (int q = 0; q < group_.size(); ++q) {
    if (q == group_.rank()) continue;
    const Partner& partner = partners_[static_cast<std::size_t>(q)];
    const auto connections = streams(q);
    const bool open = std::any_of(connections.begin(), connections.end(),
                                  [](const Stream& s) { return !s.sends_done() || !s.receives_done(); });
    if (!partner.verified || open || partner.last_step > step_ + 1) ranks.push_back(q);
  }
  return ranks;
}

void Collective::check_peers(std::chrono::nanoseconds waited) const {
  if (!posted_) return;
  if (differs_since_ && Deadline::Clock::now() - *differs_since_ > kMismatchGrace) throw_mismatch();
  const std::vector<int> ranks = needed();
  std::vector<int> absent;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(absent),
               [&](int q) { return !partners_[static_cast<std::size_t>(q)].verified; });
  group_.check(ranks, absent.empty() ? ranks : absent, sequence_, describe(), waited);
}

}  // namespace reigen::comm::tcp
