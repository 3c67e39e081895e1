// Gathers weights of which each rank has only its share (RangeValues::whole()), so that they are whole while a unit
// computes with them.
//
// A unit's weights are gathered before its forward, and usually freed after the forward. Then they are gathered again
// before the unit's backward. They are freed when backward has passed the unit (unit_watch.h). While a unit computes,
// the gather of the next unit is already in flight. In backward, the next unit is the preceding unit of the model.
// Weights that belong to no unit, or to several, are gathered with the first forward and remain in memory until their
// values change, because a second backward may need them.
//
// Weights may be sent in 16 bits (GatherOptions::type); the receiver converts them back to fp32. Between forward and
// backward, small groups of ranks may keep a unit's weights divided among them (GatherOptions::keepers, kept_slices.h).
//
// All ranks must run the same units in the same order: each gather is a call of all ranks.
// Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/exchange/block_pool.h"
#include "parallel/watch/unit_watch.h"
#include "parallel/weights/kept_slices.h"
#include "parallel/weights/weights.h"
#include "reigen/comm/communicator.h"
#include "reigen/nn/unit.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

struct GatherOptions {
  bool release_after_forward = true;
  int keepers = 0;                          // ranks in each group that keeps a unit's weights; 0 means no such groups
  std::optional<at::ScalarType> type = {};  // the type in which fp32 values are sent; nullopt means fp32
};

class UnitGatherer final : public Weights, public std::enable_shared_from_this<UnitGatherer> {
 public:
  // unit_of[i]: the unit that range i belongs to, or units->size() if it belongs to no unit. Collective.
  UnitGatherer(const Communicator& world, std::shared_ptr<UnitWatch> units, std::vector<ParameterRange> ranges,
               std::vector<std::size_t> unit_of, const GatherOptions& options);
  ~UnitGatherer() override;
  UnitGatherer(const UnitGatherer&) = delete;  // units point to this object
  UnitGatherer& operator=(const UnitGatherer&) = delete;
  // Makes the units call run() of this object, which gathers their weights.
  void attach();

  void begin_forward() override;
  void leave_passed(std::size_t entered) override;
  void enter(std::size_t unit) override;
  void require_there(std::size_t range, const std::string& parameter) const override;
  void end_backward() override;
  void gather_all() override;
  bool come_and_go() const override { return true; }
  std::int64_t allocations() const override;

 private:
  struct Coming {  // a gather of one range that was started
    std::size_t range = 0;
    std::uint64_t generation = 0;  // a number that changes with each change of the weights
    at::ScalarType type = at::kFloat;
    bool is_kept = false;  // gathered from the small group of ranks that keeps the range
    std::shared_ptr<void> memory;
    Work work;
  };
  struct Part {  // the flat ranges of one unit, or the flat ranges that belong to no unit
    std::string name;
    std::vector<std::size_t> ranges;
    std::vector<Coming> coming;
  };
  enum class Way { kForward, kBackward };

  nn::Carry run(std::size_t unit, const nn::Carry& input, const nn::Unit::Forward& inner);
  void need(std::size_t part, Way way);
  bool is_there(const Part& part) const;
  void start(Part& part);
  void keep(Part& part);
  void await(Part& part);
  void drop(Part& part);
  void end(const Coming& coming);
  void release(Part& part);
  void give_back(std::size_t range);
  void release_all();
  at::ScalarType type_on_the_way(std::size_t range) const;
  BlockPool& pool_of(const Coming& coming);
  std::shared_ptr<void> arrived(Coming& coming);

  Communicator world_;
  std::shared_ptr<UnitWatch> units_;
  std::vector<ParameterRange> ranges_;
  std::vector<Part> parts_;           // one for each unit, then one for the ranges of no unit
  std::vector<std::size_t> unit_of_;  // unit of each range
  BlockPool pool_;
  BlockPool narrow_;  // blocks for weights that are sent rounded
  GatherOptions options_;
  std::optional<KeptSlices> kept_;  // set if options_.keepers > 0
  // Whether gather_all() was called. Until the next forward, weights are then not freed and not rounded.
  bool pinned_ = false;
};

}  // namespace reigen::parallel
