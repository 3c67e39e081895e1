// Which rank will hold which part of a model, before anything is packed: the layout that data_parallel() chooses with
// these options.
//
//   auto inputs = reigen::parallel::layout_inputs(model, world, {.shard = reigen::Shard::kParameters});
//   inputs.choices.states = reigen::optim::AdamW::states({});
//   const auto layout = inputs.choose();
//   layout.bytes(reigen::layout::Role::kState, layout.coordinates_of(world.rank()));
//
// No communication: every rank with the same model and options gets the same result. Thread rule: no shared state.
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

// The caller adds the states of its optimizer (choices.states). Throws InvalidArgument for a tensor whose element type
// the file formats do not have.
LayoutInputs layout_inputs(const torch::nn::Module& module, const Communicator& world,
                           const DataParallelOptions& options);

}  // namespace reigen::parallel
