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
  kernels::Block block = {};  // the whole parameter, not only this rank's share
  double lr_factor = 1;
  double weight_decay = 0;
  bool adapt = true;
  std::int64_t step = 0;  // the number of this step for this parameter, from 1
  // This rank's share: the elements of the parameter whose indices are in [begin, end). `begin` may be below 0, and
  // `end` above the number of elements. `ranks` are the ranks among which the parameter is divided. If `ranks` is null,
  // this rank has the whole parameter.
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  const Communicator* ranks = nullptr;
  // The ranks that hold the other boxes of the parameter, or null if the parameter is whole. A norm of the parameter is
  // that of all boxes.
  const Communicator* box_owners = nullptr;
  // The parameter's range if the step must still average its gradients over the ranks, otherwise null. `segment` is the
  // parameter's index in the range.
  const ParameterRange* range = nullptr;
  std::size_t segment = 0;
  // The step sets this to true if a gradient is not finite. If the pointer is null, gradients are not checked.
  std::atomic<bool>* not_finite = nullptr;
  at::Device device = at::kCPU;                   // where the memory of `block` is; the same for all updates of a step
  const kernels::StepControl* control = nullptr;  // numbers of StepOptions::norm, or null; equal for all updates
};

struct StateKinds {
  std::vector<std::string> names = {};  // for example "exp_avg"; each range has one flat buffer for each name
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

  // Counts a step for every parameter that has a gradient, and returns the updates that the step must make. If the
  // values are in memory that ranks share, begin_step() returns after all these ranks have called it.
  std::vector<Update> begin_step(const StepOptions& how);

  // Tells autograd that the values changed, so that a graph that was built before the step refuses to run backward. If
  // the values are in memory that ranks share, end_step() returns after all these ranks have made their step.
  void end_step();
  bool was_finite() const { return was_finite_; }

  void drop_gradients();
  std::int64_t steps() const { return steps_; }
  std::vector<NamedTensor> named() const;
  void load(const std::vector<NamedTensor>& state, std::int64_t steps);

 private:
  void compare_whole(const std::vector<Update>& updates);
  struct Treatment {
    double lr_factor = 1;
    double weight_decay = 0;
    bool adapt = true;
    std::uint64_t key = 0;  // hash of the parameter's name
  };
  struct Part {
    ParameterRange range;
    kernels::Layout layout;
    std::vector<at::Tensor> states;  // one buffer for each name of StateKinds
    at::Tensor masters;              // undefined if the layout has no masters
    at::Tensor steps;                // fp32, one number for each parameter
    std::vector<Treatment> treatments;
  };
  static void check_still_there(const ParameterRange& range, const tensor::Segment& segment);
  Update update_of(const Part& part, std::size_t segment, const StepOptions& how) const;

  std::string optimizer_;
  std::vector<std::string> kinds_;
  std::vector<Part> parts_;
  std::int64_t steps_ = 0;
  int compared_ = 0;  // how many steps compared the gradients of whole parameters between ranks
  std::unique_ptr<std::atomic<bool>> not_finite_ = std::make_unique<std::atomic<bool>>(false);
  bool checks_finite_ = false;
  bool was_finite_ = true;
};

// Returns the entry of the state with the name "<segment><what>". Its tensor is the segment in `flat`, a buffer with
// the layout of the range.
NamedTensor entry_of(const ParameterRange& range, const tensor::Segment& segment, const std::string& what,
                     const at::Tensor& flat);

// Throws InvalidArgument, naming the entry, unless `given` has exactly the entries of `own`, each with the same shape
// and type. Otherwise copies the entries of `given` to `own`. If ranks divide an entry, only this rank's part is
// copied.
void load_entries(const std::string& who, const std::vector<NamedTensor>& own, const std::vector<NamedTensor>& given);

}  // namespace reigen::optim
