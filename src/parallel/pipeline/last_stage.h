// The units of a pipeline while PipelineStep::loss runs the model's forward, on the rank of the last stage.
//
// How it works: the forward calls all units of the model. A unit of an earlier stage returns what the unit before it
// returned, and in place of each tensor that it gives by a skip connection, an empty tensor. The last of these units
// returns as many tensors as the stage has got from the stage before. A unit of the last stage computes with what has
// come from other stages. The forward must give each unit exactly what it got from units before.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>

#include "nn/skip_connections.h"
#include "reigen/nn/unit.h"

namespace reigen::parallel {

class LastStage {
 public:
  // `first`: the first unit of the stage. `arrived`: what lies before it.
  LastStage(const nn::SkipConnections& skips, std::size_t first, nn::Between arrived);

  // In place of the forward of a unit.
  nn::Carry call(const nn::Unit& unit, std::size_t number, const nn::Carry& input, const nn::Unit::Forward& inner);
  // What the forward has given to the first unit of the model.
  const nn::Carry& input() const { return input_; }
  // How many units of the stage have run.
  std::size_t ran() const { return ran_; }

 private:
  // Throws InvalidArgument if the unit gets something else than what units before returned.
  void check_input(const nn::Unit& unit, std::size_t number, const nn::Carry& input) const;
  // What a unit of an earlier stage returns. `carry`: what the unit before it returned for it.
  nn::Carry in_place_of_output(std::size_t number, nn::Carry carry) const;

  const nn::SkipConnections& skips_;
  const std::size_t first_;
  const nn::Between arrived_;
  nn::Carry input_ = {};
  nn::Between computed_ = {};  // what units of this stage compute with
  nn::Between seen_;           // what the model's forward has got in place of it
  std::size_t ran_ = 0;
};

}  // namespace reigen::parallel
