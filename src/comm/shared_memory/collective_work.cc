// The additions and copies of a rank in a call, and the choice between plain and non-temporal stores for the result.
#include <chrono>
#include <cstring>

#include "base/machine/cache_size.h"
#include "comm/reduce/reduce.h"
#include "comm/shared_memory/collectives.h"

namespace reigen::comm::shared_memory {

namespace {

std::size_t cache_bytes() {
  static const std::size_t kBytes = base::last_level_cache_bytes();
  return kBytes;
}

}  // namespace

void Collective::reduce_into(std::span<const int> receivers, Part part, int block) {
  if (part.count == 0) return;
  auto& [ignored, inputs, outputs] = pipeline_.scratch;
  inputs.clear();
  outputs.clear();
  for (int q = 0; q < group_.size(); ++q) inputs.push_back(input_of(q, block) + part.begin * element_);
  for (const int q : receivers) outputs.push_back(output_of(q, group_.rank()) + part.begin * element_);
  const reduce::Pass pass{.inputs = inputs.data(),
                          .outputs = outputs.data(),
                          .input_count = group_.size(),
                          .output_count = static_cast<int>(outputs.size()),
                          .count = part.count,
                          .type = call_.type,
                          .op = call_.op,
                          .factors = factors_.empty() ? nullptr : factors_.data(),
                          .streaming = past_caches_};
  if (job_) return job_->reduce(pass);
  reduce::run(pass);
}

// Bytes that this rank reads and writes in work().
std::size_t Collective::touched_here() const {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const int r = group_.rank();
  switch (kind_) {
    case OperationKind::kAllReduce: return 2 * ranks * slice_of(r).count * element_;
    case OperationKind::kReduce: return (ranks + 1) * slice_of(r).count * element_;
    case OperationKind::kReduceScatter: return (ranks + 1) * given(r, r).count * element_;
    case OperationKind::kBroadcast: return r == call_.root ? 0 : 2 * call_.count * element_;
    case OperationKind::kGather: return 2 * extent_.input * element_;
    case OperationKind::kAllGather:
    case OperationKind::kAllToAll:
    case OperationKind::kScatter: return 2 * extent_.output * element_;
    default: return 0;
  }
}

// Guesses whether non-temporal stores are faster. They save time because a plain store first reads the cache line that
// it writes. The guess is yes if all ranks together read and write at least 1.5 times as many bytes as the last-level
// cache has, or twice as many for sums.
bool Collective::guess_past_caches(std::size_t touched) const {
  const std::size_t by_all = touched * static_cast<std::size_t>(group_.size());
  return reduces(call_.kind) ? by_all >= 2 * cache_bytes() : 2 * by_all >= 3 * cache_bytes();
}

// Does the work with plain or non-temporal stores, whichever was faster in earlier calls. Only fused calls on host
// memory may use non-temporal stores. A two_shot call does not use them, because the data in a staging buffer are read
// again at once. A sum in place does not use them, because they would evict the cache lines of the input, which this
// rank has just read.
void Collective::work_as_measured() {
  past_caches_ = false;
  if (job_ || path_ != Way::kFused || (reduces(call_.kind) && call_.input == call_.output)) return work();
  const std::size_t touched = touched_here();
  if (touched < StoreChoices::kLeastBytes) return work();
  const auto kind = reduces(call_.kind) ? StoreChoices::Work::kSum : StoreChoices::Work::kCopy;
  StoreChoice& choice = pipeline_.stores.of(kind, touched);
  past_caches_ = choice.past_caches(guess_past_caches(touched));
  const auto begin = std::chrono::steady_clock::now();
  work();
  choice.took(std::chrono::steady_clock::now() - begin, touched);
}

void Collective::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (to == from || bytes == 0) return;
  if (job_) return job_->copy(to, from, bytes);
  if (past_caches_) return reduce::copy_streaming(to, from, bytes);
  std::memcpy(to, from, bytes);
}

// Copies the block that `rank` gives to this rank into the output.
void Collective::take_from(int rank) {
  const int r = group_.rank();
  const std::size_t count = round_count(given(rank, r).count);
  if (count > 0) copy(output_of(r, rank), input_of(rank, r), count * element_);
}

void Collective::work() {
  const int r = group_.rank();
  const int p = group_.size();
  const bool alone = path_ == Way::kOneShot;  // every rank computes its whole result by itself
  switch (kind_) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduce: {
      std::vector<int>& receivers = pipeline_.scratch.receivers;
      receivers.clear();
      for (int q = 0; q < p; ++q) {
        if (is_written_by_others(q) && (!alone || q == r)) receivers.push_back(q);
      }
      if (!receivers.empty()) reduce_into(receivers, alone ? Part{0, call_.count} : slice_of(r), r);
      break;
    }
    case OperationKind::kReduceScatter: reduce_into({&r, 1}, {0, round_count(given(r, r).count)}, r); break;
    case OperationKind::kAllGather:
    case OperationKind::kAllToAll:
      // Each rank starts with the next rank's block, so that the ranks do not all read the same memory at once.
      for (int i = 1; i <= p; ++i) take_from((r + i) % p);
      break;
    case OperationKind::kBroadcast:
      if (r != call_.root) take_from(call_.root);
      break;
    case OperationKind::kScatter: take_from(call_.root); break;
    case OperationKind::kGather:
      if (!alone && buffers_[static_cast<std::size_t>(call_.root)].output != nullptr) {
        const std::size_t count = round_count(given(r, call_.root).count);
        if (count > 0) copy(output_of(call_.root, r), input_of(r, call_.root), count * element_);
      } else if (r == call_.root) {
        for (int q = 0; q < p; ++q) take_from(q);
      }
      break;
    default: break;
  }
}

}  // namespace reigen::comm::shared_memory
