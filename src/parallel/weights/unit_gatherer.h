// Values of which each rank has its share (RangeValues::whole()), whole while a unit computes with them.
//
// A unit's values are gathered before its forward and, where they have left since, before its backward, while those of
// the next unit (in backward: the one before) are under way already. They leave after the forward, and when backward
// has passed them (unit_watch.h). What belongs to no unit, or to several, comes with the first forward and stays until
// the values change: a second backward may need it.
//
// Weights may travel in 16 bits (GatherOptions::type): they are widened where they arrive. Between forward and backward
// small groups of ranks may keep them among them (GatherOptions::keepers, kept_slices.h).
//
// All ranks must run the same units in the same order: gathers are calls of all.
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
  int keepers = 0;                          // how many ranks keep a unit among them behind its forward; 0: none do
  std::optional<at::ScalarType> type = {};  // of fp32 values on their way; none: as they are
};

class UnitGatherer final : public Weights, public std::enable_shared_from_this<UnitGatherer> {
 public:
  // unit_of[i]: the unit that range i belongs to; units->size(): none. Collective.
  UnitGatherer(const Communicator& world, std::shared_ptr<UnitWatch> units, std::vector<ParameterRange> ranges,
               std::vector<std::size_t> unit_of, const GatherOptions& options);
  ~UnitGatherer() override;
  UnitGatherer(const UnitGatherer&) = delete;  // units point to one
  UnitGatherer& operator=(const UnitGatherer&) = delete;
  // Installs itself in the units.
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
  struct Coming {
    std::size_t range = 0;
    std::uint64_t generation = 0;  // of the values
    at::ScalarType type = at::kFloat;
    bool is_kept = false;  // comes from those who keep it
    std::shared_ptr<void> memory;
    Work work;
  };
  struct Part {  // of a unit, or the rest
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
  void release(Part& part);
  void give_back(std::size_t range);
  void release_all();
  at::ScalarType type_on_the_way(std::size_t range) const;
  BlockPool& pool_of(const Coming& coming);
  std::shared_ptr<void> arrived(Coming& coming);

  Communicator world_;
  std::shared_ptr<UnitWatch> units_;
  std::vector<ParameterRange> ranges_;
  std::vector<Part> parts_;           // one a unit, then the rest
  std::vector<std::size_t> unit_of_;  // of ranges
  BlockPool pool_;
  BlockPool narrow_;  // what travels rounded
  GatherOptions options_;
  std::optional<KeptSlices> kept_;  // by range
  bool pinned_ = false;
};

}  // namespace reigen::parallel
