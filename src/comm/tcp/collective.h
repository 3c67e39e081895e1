// An operation over TCP: every rank sends every other rank a header that says what it called, then the steps of the
// schedule run.
//
// The data of a rank are read only when its header has been compared with this rank's call. An operation is complete
// only when the headers of all ranks have come. So a mismatch is an error on every rank, in the call where it
// happened.
//
// Several calls of a group are under way at once, each on its own lane (join.h), so that their data never mix. The
// calls begin and complete in their order: a call that is done before an earlier one waits for the earlier one.
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

// A piece of this size is still in the second-level cache when it is added.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

class Collective : public CheckedOperation {
 public:
  Collective(Group& group, const Call& call, std::uint64_t sequence);

  bool try_post() override;
  Step advance() override;

  void check_peers(std::chrono::nanoseconds waited) const override;

 private:
  struct Partner {
    Header own;                 // the header that this rank sends to the partner
    Header header;              // the header that the partner sends
    bool verified = false;      // the partner's header has come and agrees with this rank's
    bool differs = false;       // the partner's header has come and differs from this rank's
    std::size_t last_step = 0;  // one more than the last step with transfers from or to the partner
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
  std::size_t sent_steps_ = 0;  // steps whose sends are queued
  std::size_t unexpected_ = 0;  // receives of this step from ranks that are not verified
  const schedule::Algorithm* algorithm_ = nullptr;
  bool posted_ = false;
  bool heard_ = false;  // it has looked for an end of the group since it became the first call under way
  std::optional<Deadline::Clock::time_point> differs_since_;
};

}  // namespace reigen::comm::tcp
