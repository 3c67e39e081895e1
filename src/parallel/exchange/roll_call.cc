#include "parallel/exchange/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "parallel/strategies/average.h"

namespace reigen::parallel {
namespace {

const char* text(Activity activity) {
  switch (activity) {
    case Activity::kNone: return "has no more data";
    case Activity::kForward: return "begins a forward";
    case Activity::kReduction: return "averages gradients";
  }
  return "unknown";
}

}  // namespace

RollCall::RollCall(Communicator world, const JoinOptions& options)
    : world_(std::move(world)),
      options_(options),
      answers_(world_.allocate(static_cast<std::size_t>(world_.size()) + 1)),
      last_{.training = world_.size(), .here = true},
      last_forward_(last_),
      forward_before_(last_) {}

double RollCall::correction() const {
  if (options_.divide_by == DivideBy::kAllRanks) return 1;
  return static_cast<double>(world_.size()) / last_.training;
}

void RollCall::ask(Activity mine, const std::string& tag) {
  mine_ = mine;
  tag_ = tag;
  auto* const own = static_cast<unsigned char*>(answers_.get());
  *own = static_cast<unsigned char>(mine);
  work_ = world_.start_all_gather(own, own + 1, 1, DataType::kUint8, {.progress = beside_backward(world_), .tag = tag});
}

const Roll& RollCall::answer() {
  std::exchange(work_, Work()).wait();
  const auto* const answers = static_cast<const unsigned char*>(answers_.get()) + 1;
  Roll roll;
  std::vector<int> ended;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto activity = static_cast<Activity>(answers[rank]);
    if (activity == Activity::kNone) {
      ended.push_back(rank);
      continue;
    }
    if (roll.training == 0) {
      roll.activity = activity;
      roll.first_training = rank;
    } else if (activity != roll.activity) {
      throw CollectiveMismatch(to_string(Report{
          .what = fmt::format("[join] ranks that have data do different things ({})", tag_),
          .got = fmt::format("rank {} {}, rank {} {}", roll.first_training, text(roll.activity), rank, text(activity)),
          .expected = "the same forwards and backwards, in one order, on every rank that has data",
          .fix = "give every rank the same loop; a rank that skips a backward calls synchronize()"}));
    }
    ++roll.training;
  }
  if (roll.training == 0) return none_;
  roll.here = mine_ != Activity::kNone;
  last_ = roll;
  if (roll.activity == Activity::kForward) forward_before_ = std::exchange(last_forward_, roll);
  if (options_.throw_on_early_end && !ended.empty()) {
    throw EarlyEnd(Report{
        .what = fmt::format("[join] rank {} of {} has no more data ({})", fmt::join(ended, ", "), world_.size(), tag_),
        .got = fmt::format("{} that {}", roll.training, roll.training == 1 ? "trains" : "train"),
        .expected = "as many batches on every rank (throw_on_early_end)",
        .fix = "leave throw_on_early_end off, or give every rank the same number of batches"});
  }
  return last_;
}

}  // namespace reigen::parallel
