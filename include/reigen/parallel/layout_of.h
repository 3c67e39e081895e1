// Computes the layout that data_parallel() would choose: which rank holds which part of a model. The functions here
// allocate no memory for the model and do not change it.
//
//   auto inputs = reigen::parallel::layout_inputs(model, world, {.shard = reigen::Shard::kParameters});
//   inputs.choices.states = reigen::optim::AdamW::states({});
//   const auto layout = inputs.choose();
//   layout.bytes(reigen::layout::Role::kState, layout.coordinates_of(world.rank()));
//
// The functions do not communicate. With the same model and options every rank gets the same result. Thread rule: the
// functions have no shared state.
#pragma once

#include "reigen/comm/communicator.h"
#include "reigen/layout/choose.h"
#include "reigen/parallel/data_parallel_options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

struct LayoutInputs {
  layout::ModelSpec model;
  layout::Choices choices;
  layout::Machine machine;

  layout::Layout choose() const { return layout::choose(model, choices, machine); }
};

// `module`: the whole model, also if pipeline() has divided it. The result has no optimizer states: the caller sets
// them in choices.states. Throws InvalidArgument for a tensor whose element type the file formats (reigen/format/) do
// not have.
LayoutInputs layout_inputs(const torch::nn::Module& module, const Communicator& world,
                           const DataParallelOptions& options);

}  // namespace reigen::parallel
