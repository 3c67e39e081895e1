// The operations of the shared memory backend as state machines. A rank posts a call when it makes the descriptor of
// the call visible in its page (page.h). In a meeting every rank waits until all ranks have reached the same value of a
// counter. P is the number of ranks, N the bytes of a block. A call runs in one of three ways:
//
// one_shot (no rank's input has more than inline_bytes_for() bytes): each rank stores its input next to the
//   descriptor of its call. When all ranks have posted, every rank computes its result from the P stored inputs. The
//   ranks meet once. If an output lies in common memory, which all ranks map, they meet twice.
// fused (every buffer that other ranks use lies in a rank's heap or in common memory): one round with two meetings.
//   Each rank waits until all have posted, does its share of the work, and waits until all have finished.
//   all_reduce, reduce   rank r adds slice r of every input, in rank order, and writes the sum to every output (of a
//                        reduce: to the root's). Each input byte is read once, each output byte written once
//   reduce_scatter       rank r adds block r of every input: P·N read, N written
//   all_gather           every rank copies from every input: P·N read, P·N written. If the call is in place in common
//                        memory, nothing is left to do when all ranks have posted
//   broadcast, scatter   every rank copies from the root's buffer as soon as the root has posted: N read, N written.
//                        Only the root waits until all ranks have finished; the others wait until all have posted
//   gather               every rank writes into the root's output: N read, N written
//   all_to_all           every rank copies its block of every input: P·N read, P·N written
//   The uneven operations do the same with blocks of different sizes. In all_to_all_v each rank stores its counts
//   next to the descriptor of its call, so at most inline_bytes_for() / 8 ranks can make this call.
// two_shot (some buffer lies elsewhere, or a rule asks for two_shot): the same work in rounds. Each round moves one
//   chunk through the staging buffer of each rank (kStagingBytes): copy in, meet, work, meet, copy out. A rank reads
//   its own slice or block from its input. A rank whose buffers the others can reach copies nothing in or out, unless
//   a rule asks for two_shot. If an output lies in common memory, the call ends with one more meeting.
//
// Calls with data in a device's memory (medium.h) use fused and two_shot, with staging buffers of kDeviceStagingBytes.
// They never store inputs next to descriptors. A rank asks its device to add or copy, and continues when the device is
// done.
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

// State that the operations of a group share. Only the driver thread uses it.
struct Pipeline {
  struct PassedOn {
    std::uint64_t finished;  // complete when the `finished` counter of every rank has this value
    std::size_t bytes;       // size of each buffer
    // Input and output of every rank. If the list is empty, the buffers are not known, so every later call must wait.
    std::vector<Location> buffers;
  };
  std::uint64_t rounds = 0;              // number of rounds of all operations so far
  std::uint64_t completed = 0;           // number of operations that are complete on this rank
  std::vector<PassedOn> passed_on = {};  // operations on which only other ranks still work
  std::uint64_t verified_by_all = 0;     // every rank has compared the descriptors of at least this many operations
  struct Scratch {                       // lists for one sum; reused, so that a small sum allocates nothing
    std::vector<int> receivers;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
  } scratch = {};
  StoreChoices stores = {};
  std::atomic<Way> last = Way::kOneShot;  // the way of the last complete operation; any thread may read it
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
    std::byte* input = nullptr;  // null if the call uses the rank's staging buffer instead
    std::byte* output = nullptr;
    // Copies of the locations in the descriptor of the rank that has these buffers. That rank may overwrite its
    // descriptor after this rank has verified the call.
    Location input_at;
    Location output_at;
  };
  struct Part {  // a range of elements
    std::size_t begin;
    std::size_t count;
  };

  // The last condition for which this operation waits. A rank that meets it may leave the group or die.
  Need last_need() const;
  Through through() const;
  std::string describe() const;
  void tell(Descriptor& d) const;  // describes this rank's call, without its buffers
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
  const std::byte* carried(int rank) const;  // address of the stored input of a rank in one_shot
  std::byte* carried_here() const;
  std::size_t slot() const { return sequence_ % kRingSlots; }

  bool gives(int rank) const;                 // whether other ranks read the input of `rank`
  bool is_written_by_others(int rank) const;  // whether other ranks write the output of `rank`
  bool is_in_blocks() const;                  // an input has one block for every rank
  // given(): the range, in the input of `from`, of the block that rank `from` gives to rank `to`. taken_at(): the index
  // of the element in the output of `to` at which that block begins.
  Part given(int from, int to) const;
  std::size_t taken_at(int to, int from) const;
  std::size_t largest_block() const;
  std::size_t largest_input() const;  // of any rank, in elements
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
  // How many elements of a block with `block_count` elements this round moves.
  std::size_t round_count(std::size_t block_count) const;
  // Addresses in this process. input_of(): this round's piece of the block that rank `from` gives to rank `to`.
  // output_of(): the memory to which that piece, or the sum of such pieces, is written for rank `to`.
  const std::byte* input_of(int from, int to) const;
  std::byte* output_of(int to, int from) const;
  std::byte* staged(int rank, int block) const;
  bool stages(int rank) const {
    return path_ == Way::kTwoShot && buffers_[static_cast<std::size_t>(rank)].input == nullptr;
  }

  Group& group_;
  Pipeline& pipeline_;
  const Call& call_;
  const std::uint64_t sequence_;
  const OperationKind kind_;  // the operation with blocks of one size: kAllGather for a kAllGatherV
  const bool uneven_;
  const std::size_t element_;  // bytes
  const Extent extent_;
  const std::unique_ptr<Job> job_;  // null for host memory: the driver thread adds and copies
  bool is_working_ = false;         // this rank's work of the round has begun and is not done
  bool is_tiny_ = false;
  Way chosen_ = Way::kFused;
  Way path_ = Way::kFused;  // the way in use; plan_rounds() may change it when all buffers are known
  Phase phase_ = Phase::kFirst;
  Need need_;
  std::vector<Buffers> buffers_;  // by rank
  std::vector<Part> given_here_;  // all_to_all_v: for each rank, the part of its input that goes to this rank
  std::size_t largest_ = 0;       // all_to_all_v: the largest block that any rank gives, in elements
  std::vector<double> factors_;   // by rank; empty if every factor is 1
  std::size_t chunk_ = 0;         // elements of a block that one round moves
  std::size_t rounds_ = 1;
  std::size_t round_ = 0;
  bool passed_on_ = false;
  bool is_ahead_ = false;       // this rank's work was done before all ranks had posted
  bool past_caches_ = false;    // this rank's work uses non-temporal stores
  bool writes_common_ = false;  // some rank's output is common memory
  std::uint64_t base_ = 0;      // number of rounds of all earlier operations
};

}  // namespace reigen::comm::shared_memory
