#include "comm/shared_memory/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/cache_size.h"
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

std::size_t cache_bytes() {
  static const std::size_t kBytes = base::last_level_cache_bytes();
  return kBytes;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Collective::Collective(Group& group, Pipeline& pipeline, const Call& call, std::uint64_t sequence)
    : group_(group),
      pipeline_(pipeline),
      call_(call),
      sequence_(sequence),
      element_(size_of(call.type)),
      extent_(extent_of(call, group.rank(), group.size())) {
  // Every rank must choose alike, so the size of the largest input decides, whether this rank has one or not.
  if (call_.kind == OperationKind::kBarrier || input_blocks() * call_.bytes() <= kInlineBytes) path_ = Path::kInline;
  need_ = {&RankPage::posted, sequence + 1};
}

std::string Collective::describe() const {
  return fmt::format("[{}] rank {} of {} group \"{}\" #{} {}", name_of(call_.kind), group_.rank(), group_.size(),
                     group_.options().name, sequence_, shared_memory::describe(descriptor()));
}

Need Collective::last_need() const {
  if (path_ == Path::kInline) return {&RankPage::posted, sequence_ + 1};
  const bool known = phase_ != Phase::kFirst && phase_ != Phase::kPosted;
  return {&RankPage::finished, known ? base_ + rounds_ : UINT64_MAX};
}

bool Collective::gives(int rank) const {
  switch (call_.kind) {
    case OperationKind::kBroadcast:
    case OperationKind::kScatter: return rank == call_.root;
    case OperationKind::kBarrier: return false;
    default: return true;
  }
}

bool Collective::is_written_by_others(int rank) const {
  if (call_.kind == OperationKind::kAllReduce) return true;
  return (call_.kind == OperationKind::kReduce || call_.kind == OperationKind::kGather) && rank == call_.root;
}

bool Collective::is_in_blocks() const {
  return call_.kind == OperationKind::kReduceScatter || call_.kind == OperationKind::kAllToAll ||
         call_.kind == OperationKind::kScatter;
}

Descriptor Collective::descriptor() const {
  Descriptor d{sequence_, call_.count, call_.kind, call_.type, call_.op, call_.root, {}, {}, {}};
  std::memcpy(d.tag, call_.tag.data(), std::min(call_.tag.size(), kTagBytes - 1));
  return d;
}

bool Collective::try_post() {
  if (sequence_ >= kRingSlots) {
    need_ = {&RankPage::verified, sequence_ - kRingSlots + 1};
    if (!group_.met(need_)) return false;
  }
  const bool inlined = path_ == Path::kInline && gives(group_.rank());
  // An earlier call of this rank may still write what this one takes along.
  if (inlined && pipeline_.completed != sequence_) return false;
  Descriptor& d = group_.page().ring[slot()];
  d = descriptor();
  if (inlined) {
    copy_bytes(group_.page().inlined[slot()].data(), static_cast<const std::byte*>(call_.input),
               extent_.input * call_.bytes());
  } else if (path_ != Path::kInline) {
    if (gives(group_.rank())) d.input = group_.heap().locate(call_.input, extent_.input * call_.bytes());
    if (is_written_by_others(group_.rank())) {
      d.output = group_.heap().locate(call_.output, extent_.output * call_.bytes());
    }
  }
  group_.advance(&RankPage::posted, sequence_ + 1);
  return true;
}

void Collective::compare_descriptors() const {
  const Descriptor& first = descriptor_of(0);
  for (int q = 1; q < group_.size(); ++q) {
    const Descriptor& other = descriptor_of(q);
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
    try {
      if (d.input.visible != 0) buffers.input = group_.resolve(q, d.input);
      if (d.output.visible != 0) buffers.output = group_.resolve(q, d.output);
    } catch (const IoError& error) {
      if (error.exit_code() == ExitCode::kOsResource) throw;  // of this rank: no memory, no descriptors
      group_.throw_unreachable(q, error.what(), describe());
    }
  }
}

void Collective::plan_rounds() {
  const bool pushes =
      call_.kind == OperationKind::kGather && buffers_[static_cast<std::size_t>(call_.root)].output != nullptr;
  for (int q = 0; q < group_.size() && !pushes && call_.count > 0; ++q) {
    auto& buffers = buffers_[static_cast<std::size_t>(q)];
    const bool needed = gives(q) && !(call_.kind == OperationKind::kGather && q == call_.root);
    const bool reached = !needed || buffers.input != nullptr;
    const bool written = is_written_by_others(q) && call_.kind != OperationKind::kGather;
    if (reached && (!written || buffers.output != nullptr)) continue;
    path_ = Path::kStaged;
    buffers.input = buffers.output = nullptr;
  }
  chunk_ = path_ == Path::kStaged ? std::max<std::size_t>(1, kStagingBytes / element_ / input_blocks()) : call_.count;
  rounds_ = path_ == Path::kStaged ? (call_.count + chunk_ - 1) / chunk_ : 1;
}

std::size_t Collective::round_count() const { return std::min(chunk_, call_.count - round_begin()); }

std::byte* Collective::staged(int rank, int block) const {
  return group_.page_of(rank).staging.data() + static_cast<std::size_t>(block) * chunk_ * element_;
}

const std::byte* Collective::input_of(int rank, int block) const {
  const std::size_t at = (static_cast<std::size_t>(block) * call_.count + round_begin()) * element_;
  if (rank == group_.rank()) return static_cast<const std::byte*>(call_.input) + at;
  if (path_ == Path::kInline) return group_.page_of(rank).inlined[slot()].data() + at;
  return stages(rank) ? staged(rank, block) : buffers_[static_cast<std::size_t>(rank)].input + at;
}

std::byte* Collective::output_of(int rank, int block) const {
  const std::size_t at = (static_cast<std::size_t>(block) * call_.count + round_begin()) * element_;
  if (rank == group_.rank()) return static_cast<std::byte*>(call_.output) + at;
  return stages(rank) ? staged(rank, block) : buffers_[static_cast<std::size_t>(rank)].output + at;
}

// Slices end on cache lines, so that two ranks never write one line.
Collective::Part Collective::slice_of(int rank) const {
  const std::size_t count = round_count();
  const std::size_t line = std::max<std::size_t>(1, 64 / element_);
  const auto ranks = static_cast<std::size_t>(group_.size());
  const std::size_t slice = ((count + ranks - 1) / ranks + line - 1) / line * line;
  const std::size_t begin = std::min(count, slice * static_cast<std::size_t>(rank));
  return {begin, std::min(count, begin + slice) - begin};
}

// What others read of this rank. Its own slice or block is read where it lies.
void Collective::stage_input() {
  const int r = group_.rank();
  if (!gives(r) || !stages(r) || (call_.kind == OperationKind::kGather && r == call_.root)) return;
  if (is_in_blocks()) {
    for (int q = 0; q < group_.size(); ++q) {
      if (q != r) copy_bytes(staged(r, q), input_of(r, q), round_count() * element_);
    }
    return;
  }
  const bool in_slices = call_.kind == OperationKind::kAllReduce || call_.kind == OperationKind::kReduce;
  for (int q = 0; q < group_.size(); ++q) {
    if (in_slices && q == r) continue;
    const Part part = slice_of(q);
    copy_bytes(staged(r, 0) + part.begin * element_, input_of(r, 0) + part.begin * element_, part.count * element_);
  }
}

// What others wrote for this rank.
void Collective::unstage_output() {
  const int r = group_.rank();
  if (!stages(r) || !is_written_by_others(r) || call_.kind == OperationKind::kGather) return;
  for (int q = 0; q < group_.size(); ++q) {
    if (q == r) continue;
    const Part part = slice_of(q);
    copy_bytes(output_of(r, 0) + part.begin * element_, staged(r, 0) + part.begin * element_, part.count * element_);
  }
}

void Collective::begin_round() {
  if (path_ == Path::kStaged && call_.count > 0) stage_input();
  if (path_ == Path::kStaged) group_.advance(&RankPage::arrived, base_ + round_ + 1);
  need_ = {&RankPage::arrived, path_ == Path::kStaged ? base_ + round_ + 1 : 0};
  phase_ = Phase::kArriving;
}

void Collective::reduce_into(const std::vector<int>& receivers, Part part, int block) {
  if (part.count == 0) return;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (int q = 0; q < group_.size(); ++q) inputs.push_back(input_of(q, block) + part.begin * element_);
  for (const int q : receivers) outputs.push_back(output_of(q, 0) + part.begin * element_);
  // What is written need not pass through caches that cannot hold it until it is read again.
  const std::size_t touched = part.count * element_ * (inputs.size() + outputs.size()) * inputs.size();
  reduce::run({.inputs = inputs.data(),
               .outputs = outputs.data(),
               .input_count = group_.size(),
               .output_count = static_cast<int>(outputs.size()),
               .count = part.count,
               .type = call_.type,
               .op = call_.op,
               .streaming = path_ == Path::kDirect && call_.input != call_.output && touched >= 2 * cache_bytes()});
}

// Into this rank's output.
void Collective::copy_from(int rank, int block, int to_block) {
  copy_bytes(output_of(group_.rank(), to_block), input_of(rank, block), round_count() * element_);
}

void Collective::work() {
  if (call_.count == 0) return;
  const int r = group_.rank();
  const int p = group_.size();
  const bool alone = path_ == Path::kInline;  // every rank computes all that it needs
  switch (call_.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduce: {
      std::vector<int> receivers;
      for (int q = 0; q < p; ++q) {
        if (is_written_by_others(q) && (!alone || q == r)) receivers.push_back(q);
      }
      if (!receivers.empty()) reduce_into(receivers, alone ? Part{0, call_.count} : slice_of(r), 0);
      break;
    }
    case OperationKind::kReduceScatter: reduce_into({r}, {0, round_count()}, r); break;
    case OperationKind::kAllGather:
      // Starting with the neighbour keeps the ranks from reading the same memory at once.
      for (int i = 1; i <= p; ++i) copy_from((r + i) % p, 0, (r + i) % p);
      break;
    case OperationKind::kBroadcast:
      if (r != call_.root) copy_from(call_.root, 0, 0);
      break;
    case OperationKind::kScatter: copy_from(call_.root, r, 0); break;
    case OperationKind::kGather:
      if (!alone && buffers_[static_cast<std::size_t>(call_.root)].output != nullptr) {
        copy_bytes(output_of(call_.root, r), input_of(r, 0), round_count() * element_);
      } else if (r == call_.root) {
        for (int q = 0; q < p; ++q) copy_from(q, 0, q);
      }
      break;
    case OperationKind::kAllToAll:
      for (int i = 1; i <= p; ++i) copy_from((r + i) % p, r, (r + i) % p);
      break;
    case OperationKind::kBarrier: break;
  }
}

// What was posted stays as it is until this rank counts it as verified, whatever becomes of its owner: an abort that
// came after its owner had completed this call concerns the next one.
Step Collective::finish_inline() {
  chunk_ = call_.count;
  work();
  group_.throw_if_aborted(sequence_ + 1);
  group_.advance(&RankPage::verified, sequence_ + 1);
  phase_ = Phase::kComplete;
  pipeline_.completed += 1;
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
      if (!group_.met(need_)) return Step::kBlocked;
      compare_descriptors();
      if (!may_begin()) return Step::kBlocked;
      if (path_ == Path::kInline) return finish_inline();
      // A rank may have announced this call while it still had to write the result of an inline one.
      need_ = {&RankPage::verified, sequence_};
      if (!group_.met(need_)) return Step::kBlocked;
      resolve_buffers();
      plan_rounds();
      pipeline_.rounds = base_ + rounds_;
      // A staged call still has a result to copy out when all have finished: the next may not begin before.
      if (path_ != Path::kStaged) group_.advance(&RankPage::verified, sequence_ + 1);
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
        if (path_ == Path::kStaged || call_.kind != OperationKind::kAllReduce) return Step::kBlocked;
        pass_on();
        return Step::kPassedOn;
      }
      if (call_.count > 0) unstage_output();
      if (++round_ < rounds_) {
        begin_round();
        return Step::kMoved;
      }
      if (path_ == Path::kStaged) group_.advance(&RankPage::verified, sequence_ + 1);
      phase_ = Phase::kComplete;
      pipeline_.completed += 1;
      return Step::kDone;
    case Phase::kComplete: break;
  }
  return Step::kDone;
}

}  // namespace reigen::comm::shared_memory
