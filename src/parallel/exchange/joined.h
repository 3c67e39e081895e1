// The exchange while a Join lives. Under a Join (reigen/parallel/join.h) the data of some ranks may end earlier than
// that of others. Ranks with data announce to all ranks each round, and each forward that synchronises buffers. Ranks
// without data take part in the round with zeros.
//
// Before a round starts its first bucket, all ranks are asked which of them still train. The hook of the first gradient
// starts this question, which is an all_gather (roll_call.h), and no bucket starts before the answer has arrived. So if
// ranks do different things, or if training is to end, no rank has started a call that another rank leaves out. If
// gradients become ready before the answer arrives, their buckets wait for the answer.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "parallel/exchange/exchange.h"
#include "parallel/exchange/roll_call.h"
#include "parallel/trained_parameters.h"
#include "reigen/comm/communicator.h"
#include "reigen/parallel/join.h"

namespace reigen::parallel {

class Joined final : public Exchange {
 public:
  Joined(Communicator world, std::vector<ParameterRange> ranges, const JoinOptions& options);

  // Call put_inner(), which sets the wrapped exchange, before all other functions. take_inner() gives the wrapped
  // exchange back.
  void put_inner(std::unique_ptr<Exchange> inner) { inner_ = std::move(inner); }
  std::unique_ptr<Exchange> take_inner() { return std::move(inner_); }
  // For a rank without data: asks what the other ranks do next, and waits for the answer. `tag`: the question's tag.
  const Roll& answer(const std::string& tag);
  // Begins a round that ranks with data have announced. This rank takes part in it with zeros.
  void begin_of_others(const Round& round);
  const RollCall& roll_call() const { return roll_call_; }

  void announce_forward(const std::string& tag) override;
  Participants participants() const override;
  void begin_forward() override { inner_->begin_forward(); }
  void take(std::size_t parameter) override { inner_->take(parameter); }
  void begin(const Round& round) override;
  void ready(std::size_t parameter) override;
  void finish(int first) override;
  void abandon() override;
  void end_backward() override { inner_->end_backward(); }
  bool is_under_way() const override { return inner_->is_under_way(); }
  std::uint64_t bytes_given() const override { return inner_->bytes_given(); }
  std::size_t bucket_count() const override { return inner_->bucket_count(); }
  const std::vector<BucketTimes>& bucket_times() const override { return inner_->bucket_times(); }

 private:
  enum class Announced { kNot, kAsked, kAnswered };

  void ask();
  void hear();

  Communicator world_;
  std::unique_ptr<Exchange> inner_;
  std::vector<ParameterRange> ranges_;
  RollCall roll_call_;
  Round round_;
  Announced announced_ = Announced::kNot;  // whether this round was announced to all ranks
  std::vector<std::size_t> waiting_;       // parameters whose gradients came before the answer
};

}  // namespace reigen::parallel
