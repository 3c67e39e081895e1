#include "comm/shared_memory/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::shared_memory {

namespace {

bool same_call(const Descriptor& a, const Descriptor& b) {
  return a.sequence == b.sequence && a.count == b.count && a.kind == b.kind && a.type == b.type && a.op == b.op &&
         a.root == b.root && std::strncmp(a.tag, b.tag, kTagBytes) == 0;
}

std::string what_differs(const Descriptor& a, const Descriptor& b) {
  if (a.kind != b.kind) return "operation";
  if (a.count != b.count) return "count";
  if (a.type != b.type) return "type";
  if (a.op != b.op) return "reduction";
  if (a.root != b.root) return "root";
  return "tag";
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Collective::Collective(Group& group, Pipeline& pipeline, const Call& call, std::uint64_t sequence)
    : group_(group), pipeline_(pipeline), call_(call), sequence_(sequence), element_(size_of(call.type)) {
  need_ = {&RankPage::posted, sequence + 1};
}

std::string Collective::describe() const {
  return fmt::format("[{}] rank {} of {} group \"{}\" #{} {}", name_of(call_.kind), group_.rank(), group_.size(),
                     group_.options().name, sequence_,
                     shared_memory::describe(group_.page().ring[sequence_ % kRingSlots]));
}

Need Collective::last_need() const {
  const bool known = phase_ != Phase::kFirst && phase_ != Phase::kPosted;
  return {&RankPage::finished, known ? base_ + rounds_ : UINT64_MAX};
}

bool Collective::try_post() {
  if (sequence_ >= kRingSlots && !group_.met({&RankPage::verified, sequence_ - kRingSlots + 1})) return false;
  Descriptor& d = group_.page().ring[sequence_ % kRingSlots];
  d = Descriptor{sequence_, call_.count, call_.kind, call_.type, call_.op, call_.root, {}, {}, {}};
  std::memcpy(d.tag, call_.tag.data(), std::min(call_.tag.size(), kTagBytes - 1));
  const bool reads_input = call_.kind == OperationKind::kAllReduce || call_.kind == OperationKind::kAllGather ||
                           (call_.kind == OperationKind::kBroadcast && call_.root == group_.rank());
  if (reads_input) d.input = group_.heap().locate(call_.input, call_.bytes());
  if (call_.kind == OperationKind::kAllReduce) d.output = group_.heap().locate(call_.output, call_.bytes());
  group_.advance(&RankPage::posted, sequence_ + 1);
  return true;
}

void Collective::compare_descriptors() const {
  const auto slot = sequence_ % kRingSlots;
  const Descriptor& first = group_.page_of(0).ring[slot];
  for (int q = 1; q < group_.size(); ++q) {
    const Descriptor& other = group_.page_of(q).ring[slot];
    if (same_call(first, other)) continue;
    throw CollectiveMismatch(to_string(
        Report{.what = fmt::format("[{}] group \"{}\" call #{}: ranks 0 and {} differ in the {}", name_of(first.kind),
                                   group_.options().name, sequence_, q, what_differs(first, other)),
               .got = fmt::format("rank {}: {}", q, shared_memory::describe(other)),
               .expected = fmt::format("as rank 0: {}", shared_memory::describe(first)),
               .fix = "every rank must make the same calls in the same order"}));
  }
}

// An operation may begin while others still work on earlier ones only if no rank's buffers meet: what this one reads
// may be what a slower rank has yet to write.
bool Collective::may_begin() {
  std::erase_if(pipeline_.passed_on, [&](const Pipeline::PassedOn& earlier) {
    return group_.met({&RankPage::finished, earlier.finished});
  });
  if (pipeline_.passed_on.empty()) return true;
  need_ = {&RankPage::finished, pipeline_.passed_on.back().finished};
  if (call_.kind != OperationKind::kAllReduce) return false;
  for (int q = 0; q < group_.size(); ++q) {
    const Descriptor& d = descriptor_of(q);
    if (d.input.visible == 0 || d.output.visible == 0) return false;
    const auto first = 2 * static_cast<std::size_t>(q);
    for (const auto& earlier : pipeline_.passed_on) {
      for (const Location& a : {d.input, d.output}) {
        for (const Location& b : {earlier.buffers[first], earlier.buffers[first + 1]}) {
          if (a.segment == b.segment && a.offset < b.offset + earlier.bytes && b.offset < a.offset + call_.bytes()) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

void Collective::pass_on() {
  if (passed_on_) return;
  passed_on_ = true;
  Pipeline::PassedOn entry{.finished = need_.value, .bytes = call_.bytes(), .buffers = {}};
  for (const Buffers& buffers : buffers_) {
    entry.buffers.push_back(buffers.input_at);
    entry.buffers.push_back(buffers.output_at);
  }
  pipeline_.passed_on.push_back(std::move(entry));
}

void Collective::resolve_buffers() {
  buffers_.resize(static_cast<std::size_t>(group_.size()));
  for (int q = 0; q < group_.size(); ++q) {
    const Descriptor& d = descriptor_of(q);
    auto& buffers = buffers_[static_cast<std::size_t>(q)];
    buffers.input_at = d.input;
    buffers.output_at = d.output;
    const bool matters = call_.kind == OperationKind::kAllReduce || call_.kind == OperationKind::kAllGather ||
                         (call_.kind == OperationKind::kBroadcast && q == call_.root);
    if (!matters || call_.count == 0) continue;
    const bool visible = d.input.visible != 0 && (call_.kind != OperationKind::kAllReduce || d.output.visible != 0);
    if (!visible) {
      staged_ = true;
      continue;
    }
    try {
      buffers.input = group_.resolve(q, d.input);
      if (call_.kind == OperationKind::kAllReduce) buffers.output = group_.resolve(q, d.output);
    } catch (const IoError& error) {
      group_.throw_unreachable(q, error.what(), describe());
    }
  }
  chunk_ = staged_ ? kStagingBytes / element_ : call_.count;
  rounds_ = staged_ ? (call_.count + chunk_ - 1) / chunk_ : 1;
}

std::size_t Collective::round_count() const { return std::min(chunk_, call_.count - round_begin()); }

const std::byte* Collective::input_of(int rank, std::size_t begin) const {
  const auto& buffers = buffers_[static_cast<std::size_t>(rank)];
  return buffers.input != nullptr ? buffers.input + begin * element_
                                  : group_.page_of(rank).staging.data() + (begin - round_begin()) * element_;
}

void Collective::begin_round() {
  const int r = group_.rank();
  const bool gives = call_.kind != OperationKind::kBroadcast || call_.root == r;
  if (staged_ && gives && stages(r)) {
    copy_bytes(group_.page().staging.data(), static_cast<const std::byte*>(call_.input) + round_begin() * element_,
               round_count() * element_);
  }
  if (staged_) group_.advance(&RankPage::arrived, base_ + round_ + 1);
  need_ = {&RankPage::arrived, staged_ ? base_ + round_ + 1 : 0};
  phase_ = Phase::kArriving;
}

// Adds elements [begin, begin + count) of the whole buffer.
void Collective::reduce(std::size_t begin, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  std::vector<const std::byte*> inputs(ranks);
  std::vector<std::byte*> outputs(ranks);
  for (int q = 0; q < group_.size(); ++q) {
    const auto i = static_cast<std::size_t>(q);
    inputs[i] = input_of(q, begin);
    outputs[i] = stages(q) ? group_.page_of(q).staging.data() + (begin - round_begin()) * element_
                           : buffers_[i].output + begin * element_;
  }
  reduce::run({inputs.data(), outputs.data(), group_.size(), group_.size(), count, call_.type, call_.op});
}

void Collective::work() {
  const std::size_t begin = round_begin();
  const std::size_t count = call_.count == 0 ? 0 : round_count();
  const int r = group_.rank();
  auto* output = static_cast<std::byte*>(call_.output);
  switch (call_.kind) {
    case OperationKind::kAllReduce: {
      // Slices end on cache lines, so that two ranks never write one line.
      const std::size_t line = std::max<std::size_t>(1, 64 / element_);
      const auto ranks = static_cast<std::size_t>(group_.size());
      const std::size_t slice = ((count + ranks - 1) / ranks + line - 1) / line * line;
      const std::size_t from = std::min(count, slice * static_cast<std::size_t>(r));
      const std::size_t to = std::min(count, from + slice);
      if (to > from) reduce(begin + from, to - from);
      break;
    }
    case OperationKind::kAllGather:
      // Starting with the neighbour keeps the ranks from reading the same memory at once.
      for (int i = 1; i <= group_.size(); ++i) {
        const int q = (r + i) % group_.size();
        std::byte* to = output + (static_cast<std::size_t>(q) * call_.count + begin) * element_;
        copy_bytes(to, q == r ? static_cast<const std::byte*>(call_.input) + begin * element_ : input_of(q, begin),
                   count * element_);
      }
      break;
    case OperationKind::kBroadcast:
      if (r != call_.root) copy_bytes(output + begin * element_, input_of(call_.root, begin), count * element_);
      break;
    case OperationKind::kBarrier: break;
  }
}

void Collective::copy_out() {
  if (call_.kind != OperationKind::kAllReduce || !staged_ || !stages(group_.rank())) return;
  copy_bytes(static_cast<std::byte*>(call_.output) + round_begin() * element_, group_.page().staging.data(),
             round_count() * element_);
}

Step Collective::advance() {
  switch (phase_) {
    case Phase::kFirst:
      base_ = pipeline_.rounds;
      phase_ = Phase::kPosted;
      return Step::kMoved;
    case Phase::kPosted:
      need_ = {&RankPage::posted, sequence_ + 1};
      if (!group_.met(need_)) return Step::kBlocked;
      compare_descriptors();
      if (!may_begin()) return Step::kBlocked;
      resolve_buffers();
      pipeline_.rounds = base_ + rounds_;
      group_.advance(&RankPage::verified, sequence_ + 1);
      begin_round();
      return Step::kMoved;
    case Phase::kArriving:
      if (!group_.met(need_)) return Step::kBlocked;
      work();
      // A rank that has given up may have changed its buffers meanwhile: what was read is not to be trusted.
      group_.throw_if_aborted();
      group_.advance(&RankPage::finished, base_ + round_ + 1);
      need_ = {&RankPage::finished, base_ + round_ + 1};
      phase_ = Phase::kFinished;
      return Step::kMoved;
    case Phase::kFinished:
      if (!group_.met(need_)) {
        // Only an all_reduce tells all ranks every buffer that it touches, so only after one may a next call begin.
        if (staged_ || call_.kind != OperationKind::kAllReduce) return Step::kBlocked;
        pass_on();
        return Step::kPassedOn;
      }
      copy_out();
      if (++round_ < rounds_) {
        begin_round();
        return Step::kMoved;
      }
      phase_ = Phase::kComplete;
      return Step::kDone;
    case Phase::kComplete: break;
  }
  return Step::kDone;
}

}  // namespace reigen::comm::shared_memory
