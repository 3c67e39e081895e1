// The code that all optimizers share: state buffers in the layout of their ranges, step counts, groups, and the list of
// updates that a step has to make.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "optim/kernels/kernels.h"
#include "optim/passes/blocks.h"
#include "reigen/optim/optimizer.h"
#include "reigen/optim/parameter_group.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// The update of one parameter in a step.
struct Update {
  kernels::Layout layout = kernels::Layout::kFloat32;
  kernels::Block block = {};  // all of the parameter
  double lr_factor = 1;
  double weight_decay = 0;
  bool adapt = true;
  std::int64_t step = 0;  // the number of this step for this parameter, from 1
  // This rank's share: elements `begin` to `end` of the parameter, as far as they exist. `ranks`: the ranks between
  // which the parameter is divided; null: this rank has all of it.
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  const Communicator* ranks = nullptr;
  // The range, or null if its gradients need not be averaged any more. `segment`: the parameter's number in the range.
  const ParameterRange* range = nullptr;
  std::size_t segment = 0;
  // Set to true where a gradient is not finite; null: not checked.
  std::atomic<bool>* not_finite = nullptr;
  at::Device device = at::kCPU;                   // where the memory of `block` is, for all updates of a step
  const kernels::StepControl* control = nullptr;  // on a GPU, for all updates of a step: StepOptions::norm
};

struct StateKinds {
  std::vector<std::string> names = {};  // "exp_avg"; one flat buffer per range and name
  double initial = 0;
  bool bf16 = false;
  bool master = false;  // fp32 masters and states for 16-bit values
};

// Describes these states and the step count in the form that a layout takes.
std::vector<layout::StateSpec> specs_of(const StateKinds& kinds);

class RangeState {
 public:
  RangeState(std::string optimizer, std::vector<ParameterRange> ranges, StateKinds kinds, double weight_decay,
             const std::vector<ParameterGroup>& groups);

  // Counts a step for every parameter that has a gradient. If values lie in memory of several ranks, all these ranks
  // have called begin_step() when it returns.
  std::vector<Update> begin_step(const StepOptions& how);

  // Tells autograd that the values changed, so that a graph that was built before the step refuses to run backward. If
  // values lie in memory of several ranks, all these ranks have made their step when end_step() returns.
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
    std::uint64_t key = 0;  // hash of the parameter's name
  };
  struct Part {
    ParameterRange range;
    kernels::Layout layout;
    std::vector<at::Tensor> states;  // one per kind
    at::Tensor masters;              // undefined where there are none
    at::Tensor steps;                // fp32, one per segment
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

// The entry "<segment><what>": this rank's part of the segment in `flat`. `flat` has the layout of the range.
NamedTensor entry_of(const ParameterRange& range, const tensor::Segment& segment, const std::string& what,
                     const at::Tensor& flat);

// Throws InvalidArgument, naming the entry, unless `given` has exactly the entries of `own`, each with the same shape
// and type. Then copies the entries. Of an entry that ranks divide, it copies only this rank's part.
void load_entries(const std::string& who, const std::vector<NamedTensor>& own, const std::vector<NamedTensor>& given);

}  // namespace reigen::optim
