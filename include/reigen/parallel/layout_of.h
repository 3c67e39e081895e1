// Who will have what of a model, before anything is packed: what data_parallel() decides with these options.
//
//   auto inputs = reigen::parallel::layout_inputs(model, world, {.shard = reigen::Shard::kParameters});
//   inputs.choices.states = reigen::optim::AdamW::states({});
//   const auto layout = inputs.choose();
//   layout.bytes(reigen::layout::Role::kState, layout.coordinates_of(world.rank()));
//
// Local: the same on every rank of the same model and options. Thread rule: no shared state.
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

// The states of an optimizer are the caller's to add. Throws InvalidArgument for a tensor of a type that files do not
// know.
LayoutInputs layout_inputs(const torch::nn::Module& module, const Communicator& world,
                           const DataParallelOptions& options);

}  // namespace reigen::parallel
