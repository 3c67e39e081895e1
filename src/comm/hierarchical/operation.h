// The operations of a hierarchical group. A collective is a plan (plan.h) whose stages run one after the other.
//
// Up to kLanes collectives run at the same time, each with a part (a smaller group, group.h) of its own inside the
// machine. While one collective waits for the network, the next collective sums data inside the machine and begins to
// send. All ranks must begin the calls over the network in the same order, which is the order of the collectives. So a
// collective begins such calls only when it has the turn, and passes the turn on after its last call over the network
// has begun. Collectives complete in the order of the calls. Only the first collective in flight throws its error,
// because the error of a later collective may have its cause in an earlier collective that another rank has not
// completed.
//
// A send or recv runs in the part `inside` if both ranks are on one machine, else in the part `everybody`.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/call/checked_operation.h"
#include "comm/hierarchical/group.h"
#include "comm/hierarchical/plan.h"

namespace reigen::comm::hierarchical {

class Collective : public CheckedOperation {
 public:
  Collective(Group& group, const Call& call, std::uint64_t sequence);

  bool try_post() override;
  Step advance() override;
  void check_peers(std::chrono::nanoseconds waited) const override;

 private:
  bool is_over() const { return stage_ == stages_.size(); }
  bool is_first() const { return group_.in_flight.is_first(sequence_); }
  Part& part_of_stage() const { return group_.part(stages_[stage_].level, lane_of(sequence_)); }
  void keep_or_throw();
  void pass_turn();
  void next_stage();
  Step move();
  Step run_stage();
  Step advance_stage();
  std::string describe() const;
  void note_difference(const CollectiveMismatch& error) const;

  Group& group_;
  const Call& call_;
  const std::uint64_t sequence_;
  std::vector<Stage> stages_;
  std::size_t stage_ = 0;
  std::unique_ptr<Operation> running_;  // the operation of the current stage
  std::string taken_;                   // the algorithms that the completed stages used
  bool posted_ = false;                 // running_ is visible to the other ranks
  bool has_begun_ = false;              // running_ has returned kPassedOn or kDone, so the next call may begin
  std::exception_ptr error_;            // what a stage threw before this collective became the first in flight
  // The time at which this rank learned that the ranks made different calls. The control channel soon says which calls
  // differ.
  mutable std::optional<Deadline::Clock::time_point> differs_since_;
  mutable std::string difference_;  // the error of the part that found the difference
};

class Message : public CheckedOperation {
 public:
  Message(Group& group, const Call& call);
  ~Message() override;

  bool try_post() override { return true; }
  bool is_its_turn() const override { return operation_->is_its_turn(); }
  Step advance() override;
  void check_peers(std::chrono::nanoseconds waited) const override;

 private:
  std::string describe() const;

  Group& group_;
  const Call& call_;
  const std::uint64_t number_;  // its number among the sends to, or the recvs from, the other rank
  Part& part_;
  Call of_part_;  // a copy of the call, with the other rank's number in the part
  std::unique_ptr<Operation> operation_;
};

}  // namespace reigen::comm::hierarchical
