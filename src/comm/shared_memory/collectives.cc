#include "comm/shared_memory/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/call/mismatch_reports.h"

namespace reigen::comm::shared_memory {

namespace {

bool same_call(const Descriptor& a, const Descriptor& b) {
  return a.count == b.count && a.kind == b.kind && a.type == b.type && a.op == b.op && a.way == b.way &&
         a.root == b.root && a.counts_hash == b.counts_hash && a.tag == b.tag;
}

std::string what_differs(const Descriptor& a, const Descriptor& b) {
  const std::string differs = comm::what_differs(signature_of(a), signature_of(b));
  return differs.empty() ? "algorithm (GroupOptions::algorithms)" : differs;
}

}  // namespace

Collective::Collective(Group& group, Pipeline& pipeline, const Call& call, std::uint64_t sequence)
    : group_(group),
      pipeline_(pipeline),
      call_(call),
      sequence_(sequence),
      kind_(even_kind(call.kind)),
      uneven_(is_uneven(call.kind)),
      element_(size_of(call.type)),
      extent_(extent_of(call, group.rank(), group.size())),
      job_(group.medium() ? group.medium()->begin() : nullptr) {
  // Every rank must choose the same algorithm. So the largest input of any rank decides, even on a rank without input.
  const std::size_t largest = call_.kind != OperationKind::kAllToAllV ? largest_input() * element_ : SIZE_MAX;
  const Carrying carried = carrying(kind_, largest, group.size(), group.inline_bytes());
  is_tiny_ = largest <= kTinyBytes;
  const AlgorithmChoice& rules = group.algorithms();
  chosen_ =
      rules.empty() ? choose_usual_way(carried) : choose_way(rules, kind_, whole_bytes(call_, group.size()), carried);
  if (job_) chosen_ = largest == 0 ? Way::kOneShot : Way::kFused;
  path_ = chosen_;
  need_ = {&RankPage::posted, job_ ? 0 : sequence + 1};  // on a device, the call waits for no rank before it is posted
}

std::string Collective::describe() const {
  Descriptor own{};
  tell(own);
  return fmt::format("[{}] rank {} of {} group \"{}\" #{} {}", name_of(call_.kind), group_.rank(), group_.size(),
                     group_.options().name, sequence_, comm::describe(signature_of(own)));
}

Need Collective::last_need() const {
  if (phase_ == Phase::kMeetingAgain) return need_;
  if (path_ == Way::kOneShot) return {&RankPage::posted, sequence_ + 1};
  const bool known = phase_ != Phase::kFirst && phase_ != Phase::kPosted;
  return {&RankPage::finished, known ? base_ + rounds_ : UINT64_MAX};
}

// The counter values of a rank that is done with this broadcast or scatter, and may already make later calls. An abort
// of such a rank concerns a later call. In other operations no rank counts as done, and none in a broadcast or scatter
// at whose end all ranks meet.
Through Collective::through() const {
  return comes_from_root() && !meets_at_end() ? Through{.verified = sequence_ + 1, .finished = base_ + 1} : Through{};
}

void Collective::check_peers(std::chrono::nanoseconds waited) const {
  group_.check(need_, last_need(), phase_ == Phase::kFinished ? through() : Through{}, describe(), waited);
}

bool Collective::gives(int rank) const {
  switch (kind_) {
    case OperationKind::kBroadcast:
    case OperationKind::kScatter: return rank == call_.root;
    case OperationKind::kBarrier: return false;
    default: return true;
  }
}

bool Collective::is_written_by_others(int rank) const {
  if (kind_ == OperationKind::kAllReduce) return true;
  return (kind_ == OperationKind::kReduce || kind_ == OperationKind::kGather) && rank == call_.root;
}

bool Collective::is_in_blocks() const {
  return kind_ == OperationKind::kReduceScatter || kind_ == OperationKind::kAllToAll ||
         kind_ == OperationKind::kScatter;
}

Collective::Part Collective::given(int from, int to) const {
  const auto block = [&](int index) {
    const auto i = static_cast<std::size_t>(index);
    return uneven_ ? Part{begin_of(call_.counts, index), call_.counts[i]} : Part{i * call_.count, call_.count};
  };
  switch (kind_) {
    case OperationKind::kReduceScatter:
    case OperationKind::kScatter: return block(to);
    case OperationKind::kAllGather:
    case OperationKind::kGather: return {0, block(from).count};
    case OperationKind::kAllToAll:
      return uneven_ && from != group_.rank() ? given_here_[static_cast<std::size_t>(from)] : block(to);
    default: return {0, call_.count};
  }
}

std::size_t Collective::taken_at(int to, int from) const {
  switch (kind_) {
    case OperationKind::kAllGather:
    case OperationKind::kGather:
    case OperationKind::kAllToAll: break;
    default: return 0;
  }
  if (!uneven_) return static_cast<std::size_t>(from) * call_.count;
  REIGEN_ASSERT(kind_ != OperationKind::kAllToAll || to == group_.rank(), "only rank {} knows what it takes", to);
  return begin_of(kind_ == OperationKind::kAllToAll ? call_.arrives : call_.counts, from);
}

std::size_t Collective::largest_block() const {
  if (call_.kind == OperationKind::kAllToAllV) return largest_;
  return uneven_ ? *std::max_element(call_.counts.begin(), call_.counts.end()) : call_.count;
}

std::size_t Collective::largest_input() const {
  if (!is_in_blocks()) return largest_block();
  return uneven_ ? begin_of(call_.counts, group_.size()) : call_.count * static_cast<std::size_t>(group_.size());
}

// For a small call without a tag, writes only the cache lines that the call needs. Each line costs time: before this
// rank can write the line, the line must come back from the caches of the ranks that have read it.
void Collective::tell(Descriptor& d) const {
  d.count = call_.count;
  d.counts_hash = 0;
  d.factor = call_.factor;
  d.kind = call_.kind;
  d.type = call_.type;
  d.op = call_.op;
  d.way = chosen_;
  d.root = call_.root;
  d.writes_common = writes_common_here();
  if (uneven_ && kind_ != OperationKind::kAllToAll) {
    const CountsDigest counts = digest_of(call_);
    d.count = counts.total;
    d.counts_hash = counts.hash;
    d.counts = counts.first;
  }
  d.tag.assign(call_.tag);
}

std::byte* Collective::carried_here() const {
  return is_tiny_ ? group_.page().ring[slot()].call.tiny.data() : group_.inlined(group_.rank(), sequence_);
}

const std::byte* Collective::carried(int rank) const {
  return is_tiny_ ? descriptor_of(rank).tiny.data() : group_.inlined(rank, sequence_);
}

bool Collective::try_post() {
  if (call_.before && !call_.before->is_done()) return false;
  const bool inlined = path_ == Way::kOneShot && gives(group_.rank());
  const bool takes_along = (inlined && !is_tiny_) || call_.kind == OperationKind::kAllToAllV;
  const std::uint64_t room = takes_along ? kInlineSlots : kRingSlots;
  if (sequence_ >= room) {
    need_ = {&RankPage::verified, sequence_ - room + 1};
    // `verified_by_all` is the smallest `verified` counter of any rank when the counters were last read. They are not
    // read in every call, because that would fetch cache lines that the other ranks have just written.
    std::uint64_t& verified = pipeline_.verified_by_all;
    if (verified < need_.value) verified = group_.least(need_.counter);
    if (verified < need_.value) return false;
  }
  // An earlier call of this rank may still write the input that this call stores next to its descriptor. So all earlier
  // calls must be complete.
  if (inlined && pipeline_.completed != sequence_) return false;
  Slot& slot_here = group_.page().ring[slot()];
  Descriptor& d = slot_here.call;
  tell(d);
  if (inlined && extent_.input > 0) std::memcpy(carried_here(), call_.input, extent_.input * element_);
  if (path_ != Way::kOneShot || kind_ == OperationKind::kAllGather) announce_buffers(d);
  if (call_.kind == OperationKind::kAllToAllV) {
    std::memcpy(group_.inlined(group_.rank(), sequence_), call_.counts.data(),
                call_.counts.size() * sizeof(std::uint64_t));
  }
  slot_here.posted.store(sequence_ + 1);
  group_.note_order();
  group_.page().posted.store(sequence_ + 1, std::memory_order_release);
  group_.ring_others();
  return true;
}

// Whether this rank's output is common memory, which all ranks map. If so, the ranks must meet at the end of the call.
// Without the meeting, another rank could return from the call and write newer data to this memory. This rank would
// then overwrite the newer data with its result.
bool Collective::writes_common_here() const {
  const Heap& heap = group_.heap();
  return extent_.output > 0 && heap.has_common() && heap.is_common(call_.output, extent_.output * element_);
}

void Collective::announce_buffers(Descriptor& d) const {
  d.input = d.output = Location{};
  // An all_gather in place announces its buffers even if it is small (one_shot). If the buffers of all ranks are the
  // same common memory, the result is there already. No rank may then write the result again, because other ranks may
  // already use it.
  if (path_ == Way::kOneShot && !is_in_place()) return;
  const std::string& name = group_.options().name;
  if (gives(group_.rank())) d.input = group_.heap().locate(call_.input, extent_.input * element_, name);
  if (is_written_by_others(group_.rank()) || kind_ == OperationKind::kAllGather) {
    d.output = group_.heap().locate(call_.output, extent_.output * element_, name);
  }
}

bool Collective::all_have_posted() const {
  for (int q = 0; q < group_.size(); ++q) {
    if (group_.page_of(q).ring[slot()].posted.load() != sequence_ + 1) return false;
  }
  return true;
}

void Collective::compare_descriptors() const {
  const Descriptor& first = descriptor_of(0);
  for (int q = 1; q < group_.size(); ++q) {
    if (!same_call(first, descriptor_of(q))) throw_mismatch(q);
  }
}

// This is a separate function, because the two signatures would enlarge the stack frame of compare_descriptors(), which
// every call runs.
void Collective::throw_mismatch(int rank) const {
  const Descriptor& first = descriptor_of(0);
  const Descriptor& other = descriptor_of(rank);
  throw CollectiveMismatch(calls_differ(group_.options().name, sequence_, what_differs(first, other),
                                        {0, signature_of(first)}, {rank, signature_of(other)}));
}

// Copies what this call needs from the descriptors of all ranks, except for the locations of buffers. After this rank
// has verified the call, the other ranks may overwrite their descriptors.
void Collective::read_announced() {
  const auto p = static_cast<std::size_t>(group_.size());
  for (int q = 0; q < group_.size(); ++q) writes_common_ = writes_common_ || descriptor_of(q).writes_common;
  if (reduces(call_.kind)) {
    for (int q = 0; q < group_.size(); ++q) {
      const double factor = descriptor_of(q).factor;
      if (factor != 1) factors_.resize(p, 1.0);
      if (!factors_.empty()) factors_[static_cast<std::size_t>(q)] = factor;
    }
  }
  if (call_.kind != OperationKind::kAllToAllV) return;
  given_here_.clear();
  std::vector<std::size_t> counts(p);
  for (int q = 0; q < group_.size(); ++q) {
    std::memcpy(counts.data(), group_.inlined(q, sequence_), p * sizeof(std::uint64_t));
    const std::size_t here = counts[static_cast<std::size_t>(group_.rank())];
    const std::size_t expected = call_.arrives[static_cast<std::size_t>(q)];
    if (here != expected) {
      throw_exchange_differs(group_.options().name, sequence_, {q, here, group_.rank(), expected});
    }
    given_here_.push_back({begin_of(counts, group_.rank()), here});
    largest_ = std::max(largest_, *std::max_element(counts.begin(), counts.end()));
  }
}

// Whether no rank works on an earlier operation any more.
bool Collective::is_first_under_way() {
  std::erase_if(pipeline_.passed_on, [&](const Pipeline::PassedOn& earlier) {
    return group_.met({&RankPage::finished, earlier.finished});
  });
  return pipeline_.passed_on.empty();
}

// While other ranks still work on earlier operations, only a fused all_reduce may begin, and only if its buffers
// overlap no buffer of those operations on any rank. Otherwise it might read data that a slower rank has not written
// yet.
bool Collective::may_begin() {
  if (is_first_under_way()) return true;
  need_ = {&RankPage::finished, pipeline_.passed_on.back().finished};
  if (call_.kind != OperationKind::kAllReduce || path_ != Way::kFused) return false;
  for (int q = 0; q < group_.size(); ++q) {
    const Descriptor& d = descriptor_of(q);
    if (!d.input.is_reachable() || !d.output.is_reachable()) return false;
    const auto first = 2 * static_cast<std::size_t>(q);
    for (const auto& earlier : pipeline_.passed_on) {
      if (earlier.buffers.empty()) return false;
      for (const Location& a : {d.input, d.output}) {
        for (const Location& b : {earlier.buffers[first], earlier.buffers[first + 1]}) {
          if (a.visible == b.visible && a.segment == b.segment && a.offset < b.offset + earlier.bytes &&
              b.offset < a.offset + call_.bytes()) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

// Whether this is an all_gather whose result is there already, because all ranks made the call in place in the same
// common memory.
bool Collective::has_gathered_already() const {
  if (kind_ != OperationKind::kAllGather) return false;
  const Location& first = descriptor_of(0).output;
  for (int q = 0; q < group_.size(); ++q) {
    const Location& input = descriptor_of(q).input;
    const Location& output = descriptor_of(q).output;
    if (input.visible != Visible::kInCommon || output.visible != Visible::kInCommon) return false;
    if (output.segment != first.segment || output.offset != first.offset) return false;
    const std::size_t begin = taken_at(q, q) * element_;
    if (input.segment != output.segment || input.offset != output.offset + begin) return false;
  }
  return true;
}

// For an all_gather: whether this rank's input is its own block of the output.
bool Collective::is_in_place() const {
  const std::size_t begin = taken_at(group_.rank(), group_.rank()) * element_;
  return call_.output != nullptr && call_.input == static_cast<std::byte*>(call_.output) + begin;
}

bool Collective::is_in_common() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [](const Buffers& buffers) {
    return buffers.input_at.visible == Visible::kInCommon || buffers.output_at.visible == Visible::kInCommon;
  });
}

// Whether this is a broadcast or scatter in which a rank need not wait for all ranks. A rank then copies from the
// root's input as soon as the root has posted, and completes before all ranks have copied. If ranks share a core, each
// of them then needs one time slice less, and most of them need two less.
bool Collective::comes_from_root() const {
  return path_ == Way::kFused && job_ == nullptr &&
         (kind_ == OperationKind::kBroadcast || kind_ == OperationKind::kScatter);
}

// Whether every rank waits at the end of the call until all ranks have finished. In common memory, buffers of different
// ranks may be the same bytes. may_begin() would not notice such an overlap, because it compares the buffers of a rank
// only with earlier buffers of the same rank. So the ranks wait.
bool Collective::meets_at_end() const { return path_ == Way::kTwoShot || is_in_common() || writes_common_; }

// Does the work of this rank before all ranks have posted, if the work needs only the root's input. Returns true if the
// work is done now. If some rank made a different call, this rank finds that out later, when all ranks have posted.
bool Collective::go_ahead() {
  if (is_ahead_ || !comes_from_root() || largest_block() == 0) return false;
  const RankPage& root = group_.page_of(call_.root);
  if (root.ring[slot()].posted.load() != sequence_ + 1 || root.verified.load() < sequence_) return false;
  const Descriptor& d = descriptor_of(call_.root);
  if (!same_call(descriptor_of(group_.rank()), d) || !is_first_under_way()) return false;
  if (d.input.visible != Visible::kInHeap || writes_common_here()) return false;
  buffers_.assign(static_cast<std::size_t>(group_.size()), {});
  resolve_buffers_of(call_.root);
  chunk_ = largest_block();
  take_part();
  return is_ahead_ = true;
}

// Whether the device has done the work that was requested last. Always true for host memory.
bool Collective::device_is_done() { return job_ == nullptr || job_->is_done(); }

bool Collective::take_part() {
  if (!is_working_) {
    is_working_ = true;
    work_as_measured();
    if (job_) job_->close_part();
  }
  if (!device_is_done()) return false;
  is_working_ = false;
  // A rank that has aborted may have changed its buffers during the work. So the data that this rank has read cannot be
  // trusted.
  group_.throw_if_aborted(through(), call_.root);
  group_.advance(&RankPage::finished, base_ + round_ + 1);
  return true;
}

void Collective::pass_on() {
  if (passed_on_) return;
  passed_on_ = true;
  Pipeline::PassedOn entry{.finished = need_.value, .bytes = call_.bytes(), .buffers = {}};
  if (kind_ == OperationKind::kAllReduce) {  // only in an all_reduce do all ranks know all buffers of the call
    for (const Buffers& buffers : buffers_) {
      entry.buffers.push_back(buffers.input_at);
      entry.buffers.push_back(buffers.output_at);
    }
  }
  pipeline_.passed_on.push_back(std::move(entry));
}

void Collective::resolve_buffers() {
  buffers_.resize(static_cast<std::size_t>(group_.size()));
  for (int q = 0; q < group_.size(); ++q) resolve_buffers_of(q);
}

void Collective::resolve_buffers_of(int rank) {
  const Descriptor& d = descriptor_of(rank);
  auto& buffers = buffers_[static_cast<std::size_t>(rank)];
  buffers.input_at = d.input;
  buffers.output_at = d.output;
  try {
    if (d.input.is_reachable()) buffers.input = group_.resolve(rank, d.input);
    if (d.output.is_reachable()) buffers.output = group_.resolve(rank, d.output);
  } catch (const IoError& error) {
    if (error.exit_code() == ExitCode::kOsResource) throw;  // this rank itself lacks memory or file descriptors
    group_.throw_unreachable(rank, error.what(), describe());
  }
}

void Collective::plan_rounds() {
  // If the result lies in common memory (memory that all ranks have mapped), a user's rule that chooses the algorithm
  // two_shot has no effect. In two_shot a slow rank might copy its result from its staging
  // buffer to common memory after another rank has completed the call and written newer data there.
  const bool forced = chosen_ == Way::kTwoShot && !is_in_common();
  const bool pushes =
      !forced && kind_ == OperationKind::kGather && buffers_[static_cast<std::size_t>(call_.root)].output != nullptr;
  const std::size_t largest = largest_block();
  path_ = Way::kFused;
  for (int q = 0; q < group_.size() && !pushes && largest > 0; ++q) {
    auto& buffers = buffers_[static_cast<std::size_t>(q)];
    const bool needed = gives(q) && !(kind_ == OperationKind::kGather && q == call_.root);
    const bool reached = !needed || buffers.input != nullptr;
    const bool written = is_written_by_others(q) && kind_ != OperationKind::kGather;
    if (!forced && reached && (!written || buffers.output != nullptr)) continue;
    path_ = Way::kTwoShot;
    buffers.input = buffers.output = nullptr;
  }
  const std::size_t blocks = is_in_blocks() ? static_cast<std::size_t>(group_.size()) : 1;
  chunk_ = path_ == Way::kTwoShot ? std::max<std::size_t>(1, group_.staging_bytes() / element_ / blocks) : largest;
  rounds_ = path_ == Way::kTwoShot ? (largest + chunk_ - 1) / chunk_ : 1;
}

std::size_t Collective::round_count(std::size_t block_count) const {
  return block_count > round_begin() ? std::min(chunk_, block_count - round_begin()) : 0;
}

std::byte* Collective::staged(int rank, int block) const {
  return group_.staging_of(rank) + static_cast<std::size_t>(block) * chunk_ * element_;
}

const std::byte* Collective::input_of(int from, int to) const {
  const std::size_t at = (given(from, to).begin + round_begin()) * element_;
  if (from == group_.rank()) return static_cast<const std::byte*>(call_.input) + at;
  if (path_ == Way::kOneShot) return carried(from) + at;
  return stages(from) ? staged(from, is_in_blocks() ? to : 0) : buffers_[static_cast<std::size_t>(from)].input + at;
}

std::byte* Collective::output_of(int to, int from) const {
  const std::size_t at = (taken_at(to, from) + round_begin()) * element_;
  if (to == group_.rank()) return static_cast<std::byte*>(call_.output) + at;
  return stages(to) ? staged(to, 0) : buffers_[static_cast<std::size_t>(to)].output + at;
}

// The part of this round's elements that `rank` adds in an all_reduce or reduce. Slices end at cache-line boundaries,
// so that two ranks never write to the same line.
Collective::Part Collective::slice_of(int rank) const {
  const std::size_t count = round_count(call_.count);
  const std::size_t line = std::max<std::size_t>(1, 64 / element_);
  const auto ranks = static_cast<std::size_t>(group_.size());
  const std::size_t slice = ((count + ranks - 1) / ranks + line - 1) / line * line;
  const std::size_t begin = std::min(count, slice * static_cast<std::size_t>(rank));
  return {begin, std::min(count, begin + slice) - begin};
}

// Copies this rank's input to its staging buffer, from which the other ranks read it. The slice or block that only this
// rank reads is not copied.
void Collective::stage_input() {
  const int r = group_.rank();
  if (!gives(r) || !stages(r) || (kind_ == OperationKind::kGather && r == call_.root)) return;
  const bool in_slices = kind_ == OperationKind::kAllReduce || kind_ == OperationKind::kReduce;
  for (int q = 0; q < group_.size(); ++q) {
    if (q == r) continue;
    const Part part = in_slices ? slice_of(q) : Part{0, round_count(given(r, q).count)};
    if (part.count == 0) continue;
    copy(staged(r, is_in_blocks() ? q : 0) + part.begin * element_, input_of(r, q) + part.begin * element_,
         part.count * element_);
    if (!in_slices && !is_in_blocks()) return;  // all ranks read the same bytes: one copy is enough
  }
}

// Copies results to this rank's output from its staging buffer, where the other ranks have written them.
void Collective::unstage_output() {
  const int r = group_.rank();
  if (!stages(r) || !is_written_by_others(r) || kind_ == OperationKind::kGather) return;
  for (int q = 0; q < group_.size(); ++q) {
    if (q == r) continue;
    const Part part = slice_of(q);
    if (part.count == 0) continue;
    copy(output_of(r, q) + part.begin * element_, staged(r, 0) + part.begin * element_, part.count * element_);
  }
}

void Collective::begin_round() {
  need_ = {&RankPage::arrived, 0};
  phase_ = Phase::kArriving;
  if (path_ != Way::kTwoShot) return;
  past_caches_ = false;
  stage_input();
  if (job_) job_->close_part();
  phase_ = Phase::kStaging;
}

Step Collective::end_round() {
  if (++round_ < rounds_) {
    begin_round();
    return Step::kMoved;
  }
  if (path_ == Way::kTwoShot) group_.advance(&RankPage::verified, sequence_ + 1);
  return path_ == Way::kTwoShot && writes_common_ ? meet_again(base_ + rounds_ + 1) : complete();
}

// Completes a one_shot call, or an all_gather whose result is there already. Each other rank leaves its descriptor and
// the input next to it unchanged until this rank has verified the call, even if the other rank fails meanwhile. If a
// rank aborts after it has verified this call, the abort concerns a later call.
Step Collective::finish_at_once() {
  const bool has_work = path_ == Way::kOneShot && !has_gathered_already();
  if (has_work) {
    chunk_ = largest_block();
    work();
  }
  group_.throw_if_aborted({.verified = sequence_ + 1});
  group_.advance(&RankPage::verified, sequence_ + 1);
  return has_work && writes_common_ ? meet_again(base_ + 1) : complete();
}

// The call may have written to common memory. So no rank completes the call before all ranks have written.
Step Collective::meet_again(std::uint64_t rounds) {
  pipeline_.rounds = rounds;
  group_.advance(&RankPage::finished, rounds);
  need_ = {&RankPage::finished, rounds};
  phase_ = Phase::kMeetingAgain;
  return Step::kMoved;
}

Step Collective::complete() {
  phase_ = Phase::kComplete;
  pipeline_.completed += 1;
  pipeline_.last.store(path_, std::memory_order_relaxed);
  return Step::kDone;
}

Step Collective::advance() {
  switch (phase_) {
    case Phase::kFirst:
      base_ = pipeline_.rounds;
      phase_ = Phase::kPosted;
      return Step::kMoved;
    case Phase::kPosted:
      need_ = {&RankPage::posted, sequence_ + 1};
      if (!all_have_posted()) return go_ahead() ? Step::kMoved : Step::kBlocked;
      compare_descriptors();
      read_announced();
      if (!may_begin()) return Step::kBlocked;
      if (path_ == Way::kOneShot) return finish_at_once();
      // A rank may have posted this call before it has written the result of an earlier one_shot call. It verifies the
      // earlier call only after it has written the result. So wait until all ranks have verified all earlier calls.
      need_ = {&RankPage::verified, sequence_};
      if (!group_.met(need_)) return Step::kBlocked;
      if (has_gathered_already()) return finish_at_once();
      resolve_buffers();
      plan_rounds();
      pipeline_.rounds = base_ + rounds_;
      // In a two_shot call, a rank copies its result out of the staging buffer after all ranks have finished. The next
      // call may not begin before this copy. So a two_shot call counts as verified only after the copy (end_round()).
      if (path_ != Way::kTwoShot) group_.advance(&RankPage::verified, sequence_ + 1);
      begin_round();
      return Step::kMoved;
    case Phase::kStaging:
      if (!device_is_done()) return Step::kBlocked;
      group_.advance(&RankPage::arrived, base_ + round_ + 1);
      need_ = {&RankPage::arrived, base_ + round_ + 1};
      phase_ = Phase::kArriving;
      return Step::kMoved;
    case Phase::kArriving:
      if (!group_.met(need_)) return Step::kBlocked;
      if (!is_ahead_ && !take_part()) return Step::kBlocked;
      need_ = {&RankPage::finished, base_ + round_ + 1};
      phase_ = Phase::kFinished;
      return Step::kMoved;
    case Phase::kFinished:
      if (!group_.met(need_)) {
        if (meets_at_end()) return Step::kBlocked;
        const bool leaves = comes_from_root() && group_.rank() != call_.root;
        if (!leaves && call_.kind != OperationKind::kAllReduce) return Step::kBlocked;
        pass_on();
        return leaves ? complete() : Step::kPassedOn;
      }
      unstage_output();
      if (!job_) return end_round();
      job_->close_part();
      phase_ = Phase::kUnstaging;
      return Step::kMoved;
    case Phase::kUnstaging: return device_is_done() ? end_round() : Step::kBlocked;
    case Phase::kMeetingAgain: return group_.met(need_) ? complete() : Step::kBlocked;
    case Phase::kComplete: break;
  }
  return Step::kDone;
}

}  // namespace reigen::comm::shared_memory
