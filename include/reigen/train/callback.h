// What a program wants to do during a training: a callback has a function for each moment of the loop. The trainer
// calls the callbacks of TrainerOptions::callbacks (or Recipe::callbacks) in their order, on every rank.
//
//   struct Warmth : reigen::train::Callback {
//     std::string name() const override { return "warmth"; }
//     void end_step(Moment& moment) override { if (too_warm()) moment.stop = true; }
//   };
//
// All ranks come through the same moments in the same order, so a callback may make collective calls. An exception in a
// callback ends the training on all ranks, with an error that names the callback, its function and the rank.
// Thread rule: a callback belongs to one rank, and is used by the thread that trains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "reigen/comm/communicator.h"
#include "reigen/data/loader.h"
#include "reigen/train/metrics.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct Moment {
  std::int64_t step = 0;   // steps done; in begin_step() to end_step() the number of this step, counted from 1
  std::int64_t steps = 0;  // of the whole run
  std::int64_t epoch = 0;  // counted from 0
  Task& task;
  const Communicator& world;
  // Set it, on any rank, to end the run with a checkpoint, as a signal does (exit code 75). Ranks tell each other with
  // the losses, so the run ends after the next step; on a GPU up to three, with some strategies up to 16 steps later.
  bool stop = false;
};

class Callback {
 public:
  virtual ~Callback() = default;
  Callback() = default;
  Callback(const Callback&) = delete;  // belongs to one rank
  Callback& operator=(const Callback&) = delete;

  // Its name in messages and in checkpoints. Each callback of a run has another one.
  virtual std::string name() const = 0;

  virtual void begin_fit(Moment& /*moment*/) {}  // the weights and the state of a resumed run are there
  virtual void begin_epoch(Moment& /*moment*/) {}
  virtual void begin_step(Moment& /*moment*/, const data::Batch& /*batch*/) {}
  // The gradients are those of this rank, or already the means over the ranks (with parallel.shard none and several
  // ranks), and with fp16 multiplied by the loss scale. The trainer averages what is not averaged after this function.
  // A ManualTask makes several backwards and steps of optimizers in a batch, or none; each of them has its call.
  virtual void after_backward(Moment& /*moment*/) {}
  virtual void before_optimizer(Moment& /*moment*/) {}  // not in a step that is skipped
  virtual void end_step(Moment& /*moment*/) {}
  // The loss of a step over all ranks is known: on the CPU before end_step(), on a GPU up to two steps later, and with
  // some strategies up to 16 steps later.
  virtual void note_loss(Moment& /*moment*/, std::int64_t /*step*/, double /*loss*/) {}
  // `figures`: what training_step() has logged in the epoch, over all ranks.
  virtual void end_epoch(Moment& /*moment*/, const Figures& /*figures*/) {}
  virtual void begin_validation(Moment& /*moment*/) {}
  // Not called if a request to stop broke the validation off.
  virtual void end_validation(Moment& /*moment*/, const Figures& /*figures*/) {}
  // A checkpoint is whole on the disk. With checkpoint.asynchronous it is told before the next one is saved, or at the
  // end.
  virtual void saved_checkpoint(Moment& /*moment*/, const std::filesystem::path& /*path*/) {}
  virtual void end_fit(Moment& /*moment*/) {}  // all files are written
  // An exception ends fit(). Other ranks may have ended already, so no collective calls here.
  virtual void failed(std::string_view /*what*/) {}

  // Bytes that a checkpoint keeps for each rank, and that a resumed run gives back before begin_fit(). With another
  // number of ranks than before, each rank gets those of rank 0. A rollback gives back those of the checkpoint to which
  // it goes, also if they are empty.
  virtual std::string state() const { return {}; }
  virtual void restore(std::string_view /*state*/) {}
};

}  // namespace reigen::train
