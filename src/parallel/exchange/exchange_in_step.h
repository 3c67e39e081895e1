// The exchange that sends no gradients. Each rank's gradients lie in memory that all ranks of the machine can read. In
// its optimizer step each rank averages its share of all ranks' gradients (tensor/flat/gradient_rows.h). After
// backward the ranks send each other the places where their gradients lie. In this call the ranks wait for each other.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/exchange/exchange.h"
#include "parallel/trained_parameters.h"
#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class ExchangeInStep final : public Exchange {
 public:
  ExchangeInStep(Communicator world, TrainedParameters trained)
      : world_(std::move(world)), trained_(std::move(trained)) {}

  Participants participants() const override { return {.newest = {.ranks = world_.size()}}; }
  void begin_forward() override;
  void take(std::size_t parameter) override;
  void begin(const Round& round) override { round_ = round; }
  void ready(std::size_t) override {}
  void finish(int first) override;
  void abandon() override {}
  void end_backward() override;
  bool is_under_way() const override { return false; }
  std::uint64_t bytes_given() const override { return bytes_; }
  const std::vector<BucketTimes>& bucket_times() const override { return none_; }

 private:
  std::vector<char> exchange_places();

  Communicator world_;
  TrainedParameters trained_;
  Round round_;
  std::uint64_t bytes_ = 0;
  std::vector<BucketTimes> none_;
};

}  // namespace reigen::parallel
