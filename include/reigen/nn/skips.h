// Skip connections between the units of a model (unit.h): a unit gives a tensor to a unit that comes later. The units
// between do not see the tensor.
//
//   struct Net : torch::nn::Module {
//     at::Tensor forward(const at::Tensor& x) { return reigen::nn::fold(parts, x, skip_list); }
//     const std::vector<reigen::nn::Unit>& units() const { return parts; }            // down, middle, up
//     const std::vector<reigen::nn::Skip>& skips() const { return skip_list; }        // {{"down", "up"}}
//     ...
//   };
//   nn::Carry Down::forward(const at::Tensor& x) { ...; return {y, extra}; }          // y goes to `middle`
//   at::Tensor Up::forward(const nn::Carry& in) { ... }                               // in[1] is `extra`
//
// The tensors of skip connections are always the last ones of an output or an input. Code that calls units by itself
// must count them from the end, because in a pipeline a unit of another stage may return another number of tensors
// before them (parallel/pipeline.h). If a unit returns more or fewer tensors than it gets, use fold().
//
// A unit must not write in place to a tensor that it gives or gets by a skip connection, nor to a view of one: other
// units read it.
//
// With a pipeline the tensor goes from the stage of `down` to the stage of `up`. The same model runs with and without a
// pipeline.
// Thread rule: as for units.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::nn {

struct Skip {
  std::string from = {};  // the unit whose output ends with the tensor
  std::string to = {};    // the later unit whose input ends with the tensor
  bool operator==(const Skip&) const = default;
};

// Calls one unit after the other, as the fold() of unit.h. A unit that gives n tensors by skip connections returns them
// as the last n of its output, in the order of `skips`. The tensors before them, at least one, go to the next unit. A
// unit that takes n tensors gets them after those of the unit before, in the order of `skips`. The two units of a Skip
// may occur again in other Skips. Throws InvalidArgument if a name is not that of exactly one unit, if `to` does not
// come after `from`, and if a unit returns too few tensors or an undefined one.
Carry fold(const std::vector<Unit>& units, Carry input, const std::vector<Skip>& skips);
// The same for a model that takes one tensor and returns one. Throws InvalidArgument if the last unit returns another
// number of tensors.
at::Tensor fold(const std::vector<Unit>& units, at::Tensor input, const std::vector<Skip>& skips);

}  // namespace reigen::nn
