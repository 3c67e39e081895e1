// What all optimizers share: state buffers in the layout of their ranges, step counts, and the list of runs of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/optim/optimizer.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// Tensors of one fused call: entry i of each list covers the same elements. Neighbouring segments whose gradients lie
// in the twin buffer are one entry, so that usually a whole range is.
struct Runs {
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> gradients;
  std::vector<std::vector<at::Tensor>> states;  // [kind][entry]
  std::vector<at::Tensor> steps;                // fp32 numbers, those of the entry's first segment
  bool empty() const { return values.empty(); }
};

class RangeState {
 public:
  // One flat buffer a range and a kind ("exp_avg"), all zero.
  RangeState(std::string optimizer, std::vector<ParameterRange> ranges, std::vector<std::string> kinds);

  // Counts the step of every active segment and gives the runs: first those of segments that make their first step.
  struct Step {
    Runs first;
    Runs later;
  };
  Step begin_step();

  // Tells autograd that the values changed, so that a graph built before the step refuses to run backward.
  void end_step();

  void drop_gradients();
  std::int64_t steps() const { return steps_; }
  std::vector<NamedTensor> named() const;
  void load(const std::vector<NamedTensor>& state, std::int64_t steps);

 private:
  struct Part {
    ParameterRange range;
    std::vector<at::Tensor> states;  // one a kind
    at::Tensor steps;                // fp32, one a segment
  };
  struct OpenRun;
  static void check_still_there(const ParameterRange& range, const tensor::Segment& segment);
  void collect(Part& part, Step& step);
  void close(Part& part, OpenRun& run, Step& step) const;

  std::string optimizer_;
  std::vector<std::string> kinds_;
  std::vector<Part> parts_;
  std::int64_t steps_ = 0;
};

// Throw InvalidArgument "[<optimizer>] <option> is out of range"; NaN never passes.
void check_at_least_zero(const std::string& optimizer, const char* option, double value);
void check_above_zero(const std::string& optimizer, const char* option, double value);
void check_below_one(const std::string& optimizer, const char* option, double value);

}  // namespace reigen::optim
