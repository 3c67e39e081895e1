// The operations of the shared memory backend as state machines. P ranks, blocks of N bytes.
//
// one_shot (inputs of at most inline_bytes_for()): the input travels beside the descriptor of the call. When all have
//   posted, every rank computes what it needs from the P copies. One meeting; two where results lie in memory of all
//   ranks.
// fused (every buffer that others touch lies in a heap of ours): one round of two meetings: all have posted; every
//   rank does its share; all have finished.
//   all_reduce, reduce   rank r adds slice r of every input, in rank order, and writes it to every output (the root's):
//                        each input byte is read once, each output byte written once
//   reduce_scatter       rank r adds block r of every input: P·N read, N written
//   all_gather           every rank copies from every input: P·N read, P·N written; in place in common memory nothing
//                        is left to do when all have posted
//   broadcast, scatter   from the root's buffer: N read, N written, once the root has posted; only the root waits
//                        until all have finished, the others until all have posted
//   gather               every rank writes into the root's output: N read, N written
//   all_to_all           every rank copies its block of every input: P·N read, P·N written
//   The uneven ones are the same with blocks of their own sizes. What all_to_all_v sends whom is told beside the call's
//   descriptor, so at most inline_bytes_for() / 8 ranks can do it.
// two_shot (some buffer is foreign, or a rule says so): the same in rounds through the owner's staging area of
//   kStagingBytes: copy in, meet, work, meet, copy out. What a rank reads of its own is never staged; ranks with
//   visible buffers copy nothing. Where results lie in memory of all ranks, a meeting ends it.
//
// Memory of a device (medium.h) goes by fused and two_shot, with kDeviceStagingBytes; no input travels with a call.
// Wherever this rank adds or copies it asks its device to, and goes on when that is done.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/call/checked_operation.h"
#include "comm/shared_memory/group.h"
#include "comm/shared_memory/store_choice.h"

namespace reigen::comm::shared_memory {

// What the operations of a group know of each other. Used by the driving thread only.
struct Pipeline {
  struct PassedOn {
    std::uint64_t finished;  // every rank's counter when it is complete
    std::size_t bytes;
    std::vector<Location> buffers;  // input and output of every rank; empty: not known, no call may begin
  };
  std::uint64_t rounds = 0;              // of all operations so far
  std::uint64_t completed = 0;           // operations complete on this rank
  std::vector<PassedOn> passed_on = {};  // this rank's part is done, others still work on them
  std::uint64_t verified_by_all = 0;     // at least
  struct Scratch {                       // of a sum; kept, so that a small one allocates nothing
    std::vector<int> receivers;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
  } scratch = {};
  StoreChoices stores = {};
  std::atomic<Way> last = Way::kOneShot;  // of the last complete one; any thread may look
};

class Collective : public CheckedOperation {
 public:
  Collective(Group& group, Pipeline& pipeline, const Call& call, std::uint64_t sequence);

  bool try_post() override;
  Step advance() override;
  bool precede(const Stream& stream) override { return group_.lets_follow(stream) && precede_by(job_, stream); }

  void check_peers(std::chrono::nanoseconds waited) const override;

 private:
  enum class Phase { kFirst, kPosted, kStaging, kArriving, kFinished, kUnstaging, kMeetingAgain, kComplete };
  struct Buffers {
    std::byte* input = nullptr;  // null: staged
    std::byte* output = nullptr;
    Location input_at;  // as announced; the descriptor itself may be overwritten once this call is verified
    Location output_at;
  };
  struct Part {  // elements
    std::size_t begin;
    std::size_t count;
  };

  // What every rank must reach before it may leave.
  Need last_need() const;
  Through through() const;
  std::string describe() const;
  void tell(Descriptor& d) const;  // this rank's call, without its buffers
  void compare_descriptors() const;
  [[noreturn]] void throw_mismatch(int rank) const;
  bool is_first_under_way();
  bool may_begin();
  bool comes_from_root() const;
  bool meets_at_end() const;
  bool go_ahead();
  bool take_part();
  bool device_is_done();
  Step end_round();
  void pass_on();
  void announce_buffers(Descriptor& d) const;
  bool all_have_posted() const;
  const Descriptor& descriptor_of(int rank) const { return group_.page_of(rank).ring[slot()].call; }
  const std::byte* carried(int rank) const;  // a one-shot's input
  std::byte* carried_here() const;
  std::size_t slot() const { return sequence_ % kRingSlots; }

  bool gives(int rank) const;                 // others read its input
  bool is_written_by_others(int rank) const;  // others write its output
  bool is_in_blocks() const;                  // an input holds a block for every rank
  // Where the block that `from` gives to `to` lies in the input of `from`, and where it goes in the output of `to`.
  Part given(int from, int to) const;
  std::size_t taken_at(int to, int from) const;
  std::size_t largest_block() const;
  std::size_t largest_input() const;  // elements
  void read_announced();
  void resolve_buffers();
  void resolve_buffers_of(int rank);
  void plan_rounds();
  void begin_round();
  void stage_input();
  void unstage_output();
  bool has_gathered_already() const;
  bool is_in_place() const;
  bool is_in_common() const;
  bool writes_common_here() const;
  Step finish_at_once();
  Step meet_again(std::uint64_t rounds);
  Step complete();

  void work();
  void reduce_into(std::span<const int> receivers, Part part, int block);
  std::size_t touched_here() const;
  bool guess_past_caches(std::size_t touched) const;
  void work_as_measured();
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
  void take_from(int rank);
  Part slice_of(int rank) const;
  std::size_t round_begin() const { return round_ * chunk_; }
  // The part of a block of this round.
  std::size_t round_count(std::size_t block_count) const;
  // This round's piece of what `from` gives to `to`, and of what `to` gets from `from`, wherever this rank can reach
  // it.
  const std::byte* input_of(int from, int to) const;
  std::byte* output_of(int to, int from) const;
  std::byte* staged(int rank, int block) const;
  bool stages(int rank) const {
    return path_ == Way::kTwoShot && buffers_[static_cast<std::size_t>(rank)].input == nullptr;
  }

  Group& group_;
  Pipeline& pipeline_;
  const Call call_;
  const std::uint64_t sequence_;
  const OperationKind kind_;  // of blocks of one size
  const bool uneven_;
  const std::size_t element_;  // bytes
  const Extent extent_;
  const std::unique_ptr<Job> job_;  // null: this thread adds and copies
  bool is_working_ = false;         // the job has what this rank does in the round
  bool is_tiny_ = false;
  Way chosen_ = Way::kFused;
  Way path_ = Way::kFused;  // that is taken: two_shot for fused where memory is foreign
  Phase phase_ = Phase::kFirst;
  Need need_;
  std::vector<Buffers> buffers_;  // of every rank
  std::vector<Part> given_here_;  // all_to_all_v: in the input of every rank, what it gives to this one
  std::size_t largest_ = 0;       // all_to_all_v: block of all
  std::vector<double> factors_;   // of every rank; empty: none but 1
  std::size_t chunk_ = 0;         // elements of a block in a round
  std::size_t rounds_ = 1;
  std::size_t round_ = 0;
  bool passed_on_ = false;
  bool is_ahead_ = false;       // this rank's work is done, others have not posted
  bool past_caches_ = false;    // this rank's work writes there
  bool writes_common_ = false;  // some rank
  std::uint64_t base_ = 0;      // rounds of earlier operations
};

}  // namespace reigen::comm::shared_memory
