// What all optimizers share: state buffers in the layout of their ranges, step counts, groups, and the list of what a
// step has to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "optim/blocks.h"
#include "optim/kernels/kernels.h"
#include "reigen/optim/optimizer.h"
#include "reigen/optim/parameter_group.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// One parameter's part in a step.
struct Update {
  kernels::Layout layout = kernels::Layout::kFloat32;
  kernels::Block block = {};  // all of the parameter
  double lr_factor = 1;
  double weight_decay = 0;
  bool adapt = true;
  std::int64_t step = 0;  // which one it is of this parameter, counted from 1
  // This rank's share: elements from `begin` to `end`, where there are any; the others are of `ranks`.
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  const Communicator* ranks = nullptr;
  // The range, where gradients are still to be averaged, and the parameter's number in it.
  const ParameterRange* range = nullptr;
  std::size_t segment = 0;
  // Set where a gradient is no number; null: nobody asks.
  std::atomic<bool>* not_finite = nullptr;
};

// work(update, block) for all blocks of all updates that are this rank's, on several threads.
using BlockWork = std::function<void(const Update&, const kernels::Block&)>;
void for_each_block(const std::vector<Update>& updates, const BlockWork& work);

// The same where each block gives sums: those of every update, added in the order of its blocks, other ranks' too.
using BlockSums = std::function<kernels::Squares(const Update&, const kernels::Block&)>;
std::vector<kernels::Squares> sums_of_blocks(const std::vector<Update>& updates, const BlockSums& work);

struct StateKinds {
  std::vector<std::string> names = {};  // "exp_avg"; one flat buffer a range and a name
  double initial = 0;
  bool bf16 = false;
  bool master = false;  // fp32 masters and states for 16-bit values
};

// The same for a layout, and the count of steps.
std::vector<layout::StateSpec> specs_of(const StateKinds& kinds);

class RangeState {
 public:
  RangeState(std::string optimizer, std::vector<ParameterRange> ranges, StateKinds kinds, double weight_decay,
             const std::vector<ParameterGroup>& groups);

  // Counts the step of every parameter that has a gradient. Ranks that share values have all come here.
  std::vector<Update> begin_step(const StepOptions& how);

  // Tells autograd that the values changed, so that a graph built before the step refuses to run backward. All ranks
  // that share them have made their step.
  void end_step();
  bool was_finite() const { return was_finite_; }

  void drop_gradients();
  std::int64_t steps() const { return steps_; }
  std::vector<NamedTensor> named() const;
  void load(const std::vector<NamedTensor>& state, std::int64_t steps);

 private:
  struct Treatment {
    double lr_factor = 1;
    double weight_decay = 0;
    bool adapt = true;
    std::uint64_t key = 0;  // of the name
  };
  struct Part {
    ParameterRange range;
    kernels::Layout layout;
    std::vector<at::Tensor> states;  // one a kind
    at::Tensor masters;              // undefined where there are none
    at::Tensor steps;                // fp32, one a segment
    std::vector<Treatment> treatments;
  };
  static void check_still_there(const ParameterRange& range, const tensor::Segment& segment);
  Update update_of(const Part& part, std::size_t segment, const StepOptions& how) const;

  std::string optimizer_;
  std::vector<std::string> kinds_;
  std::vector<Part> parts_;
  std::int64_t steps_ = 0;
  std::unique_ptr<std::atomic<bool>> not_finite_ = std::make_unique<std::atomic<bool>>(false);
  bool checks_finite_ = false;
  bool was_finite_ = true;
};

// What a rank has of a segment's part of a flat buffer in the layout of the range: "<segment><what>".
NamedTensor entry_of(const ParameterRange& range, const tensor::Segment& segment, const std::string& what,
                     const at::Tensor& flat);

// Throws InvalidArgument, naming the entry, unless `given` has exactly the entries of `own`, each of its shape and
// type. Then copies them, of those that ranks divide its own part.
void load_entries(const std::string& who, const std::vector<NamedTensor>& own, const std::vector<NamedTensor>& given);

}  // namespace reigen::optim
