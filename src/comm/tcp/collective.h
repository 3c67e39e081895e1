// An operation over TCP. Every rank sends a header, which describes its call, to every other rank. Then it runs the
// steps of its schedule (comm/schedule/schedule.h).
//
// This rank reads the data of another rank only after it has compared that rank's header with its own call. An
// operation is complete only when the headers of all ranks have arrived. So a mismatch is an error on every rank, in
// the call where it happened.
//
// Several calls of a group are in flight at once. Each has its own lane, which is a set of connections (join.h), so
// that their data never mix. The calls begin and complete in the order in which they were made. If a call is done
// before an earlier call, it waits for the earlier call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/call/checked_operation.h"
#include "comm/schedule/table.h"
#include "comm/tcp/group.h"

namespace reigen::comm::tcp {

// The algorithms cut data into pieces of at most this size. A received piece is then still in the second-level cache
// when it is added.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

class Collective : public CheckedOperation {
 public:
  Collective(Group& group, const Call& call, std::uint64_t sequence);
  Collective(Group& group, Call&& call, std::uint64_t sequence) = delete;  // `call` must outlive the Collective

  bool try_post() override;
  Step advance() override;

  void check_peers(std::chrono::nanoseconds waited) const override;

 private:
  struct Partner {
    Header own;                 // the header that this rank sends to the partner
    Header header;              // the header that the partner sends
    bool verified = false;      // the partner's header has arrived and agrees with this rank's
    bool differs = false;       // the partner's header has arrived and differs from this rank's
    std::size_t last_step = 0;  // number of steps up to the last one with transfers from or to the partner
  };

  void hear_of_end();
  const schedule::Algorithm& choose(schedule::Problem& problem);
  void plan();
  const std::byte* scaled_input(std::byte* into) const;
  bool fits(const Partner& partner) const;
  void begin_step();
  void send_ahead();
  void expect_from(int rank);
  std::size_t stripes_of(const schedule::Transfer& transfer, std::size_t connections) const;
  void read_header(int rank);
  bool move_data(int rank);
  void push_all();
  Step move();
  void note_difference(Partner& partner);
  bool step_is_complete() const;
  bool has_every_header() const;
  [[noreturn]] void throw_mismatch() const;
  std::vector<int> needed() const;
  std::string describe() const;
  bool is_over() const { return step_ == schedule_.steps.size(); }
  std::span<Stream> streams(int rank) const { return group_.streams(rank, lane_); }

  Group& group_;
  const Call& call_;
  const std::uint64_t sequence_;
  const std::size_t lane_ = lane_of(sequence_);
  Header header_;
  schedule::Schedule schedule_;
  schedule::Memory memory_;
  std::vector<Partner> partners_;  // by rank
  std::size_t step_ = 0;
  std::size_t sent_steps_ = 0;  // number of steps whose sends are queued
  std::size_t unexpected_ = 0;  // receives of this step that wait for the sender's header to be verified
  const schedule::Algorithm* algorithm_ = nullptr;
  bool posted_ = false;
  bool heard_ = false;  // hear_of_end() has run: this call has checked whether another rank ended the group
  std::optional<Deadline::Clock::time_point> differs_since_;
};

}  // namespace reigen::comm::tcp
