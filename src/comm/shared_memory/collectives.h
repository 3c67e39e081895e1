// The operations of the shared memory backend as state machines.
//
// Direct (every buffer that others touch lies in a heap of ours): one round of two meetings.
//   all_reduce   all have posted; rank r reads slice r of every input, in rank order, and writes it to every output;
//   all have
//                finished. 2·N bytes of traffic a rank: each input byte is read once, each output byte written once.
//   all_gather   all have posted; every rank copies from every input; all have finished. P·N read, P·N written.
//   broadcast    the same from the root's buffer: N read, N written.
// Staged (some buffer is foreign): the same in rounds of kStagingBytes through the owner's staging area: copy in, meet,
// work, meet, copy out. Ranks with visible buffers take part without copying.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/shared_memory/group.h"

namespace reigen::comm::shared_memory {

// What the operations of a group know of each other. Used by the driving thread only.
struct Pipeline {
  struct PassedOn {
    std::uint64_t finished;  // every rank's counter when it is complete
    std::size_t bytes;
    std::vector<Location> buffers;  // input and output of every rank
  };
  std::uint64_t rounds = 0;              // of all operations so far
  std::vector<PassedOn> passed_on = {};  // this rank's part is done, others still work on them
};

class Collective : public Operation {
 public:
  Collective(Group& group, Pipeline& pipeline, const Call& call, std::uint64_t sequence);

  bool try_post() override;
  Step advance() override;

  const Need& need() const { return need_; }
  // What every rank must reach before it may leave.
  Need last_need() const;
  std::string describe() const;

 private:
  enum class Phase { kFirst, kPosted, kArriving, kFinished, kComplete };
  struct Buffers {
    std::byte* input = nullptr;  // null: staged
    std::byte* output = nullptr;
    Location input_at;  // as announced; the descriptor itself may be overwritten once this call is verified
    Location output_at;
  };

  void compare_descriptors() const;
  bool may_begin();
  void pass_on();
  const Descriptor& descriptor_of(int rank) const { return group_.page_of(rank).ring[sequence_ % kRingSlots]; }
  void resolve_buffers();
  void begin_round();
  void work();
  void reduce(std::size_t begin, std::size_t count);
  void copy_out();
  bool stages(int rank) const { return buffers_[static_cast<std::size_t>(rank)].input == nullptr; }
  const std::byte* input_of(int rank, std::size_t begin) const;
  std::size_t round_begin() const { return round_ * chunk_; }
  std::size_t round_count() const;

  Group& group_;
  Pipeline& pipeline_;
  const Call call_;
  const std::uint64_t sequence_;
  const std::size_t element_;  // bytes
  Phase phase_ = Phase::kFirst;
  Need need_;
  std::vector<Buffers> buffers_;  // of every rank
  bool staged_ = false;
  std::size_t chunk_ = 0;  // elements a round
  std::size_t rounds_ = 1;
  std::size_t round_ = 0;
  bool passed_on_ = false;
  std::uint64_t base_ = 0;  // rounds of earlier operations
};

}  // namespace reigen::comm::shared_memory
