// The units of a pipeline while PipelineStep::loss runs the model's forward, on the rank of the last stage.
//
// How it works: the forward calls all units of the model. Units of earlier stages return their input, and in place of
// each tensor that they give by a skip connection, an empty tensor. A unit of the last stage computes with what has
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
  // How many units of the stage have run.
  std::size_t ran() const { return ran_; }

 private:
  const nn::SkipConnections& skips_;
  const std::size_t first_;
  const nn::Between arrived_;
  nn::Between computed_ = {};  // what units of this stage compute with
  nn::Between seen_;           // what the model's forward has got in place of it
  std::size_t ran_ = 0;
};

}  // namespace reigen::parallel
