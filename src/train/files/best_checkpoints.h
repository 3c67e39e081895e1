// checkpoint.monitor: keeps the checkpoints with the best values of a figure of the validations, beside the newest
// ones.
//
// They are in checkpoints/best/, with best.json, which lists them from the best on. State: this list. note() is called
// with the figure of each validation, in order; a resumed run calls remember() first, with those of the validations
// before its checkpoint. The figures are the same on all ranks, so all ranks have the same list.
// Thread rule: used only by the thread of its rank. All ranks call the functions marked "Collective", in the same
// order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/files/checkpoints.h"
#include "train/run/best_checkpoint.h"
#include "train/run/run.h"

namespace reigen::train {

struct BestCheckpoint {
  std::int64_t step = 0;
  double value = 0;
};

class BestCheckpoints {
 public:
  BestCheckpoints(Run& run, Checkpoints& checkpoints) : run_(run), checkpoints_(checkpoints) {}

  bool is_on() const { return !monitor().empty(); }
  const std::string& monitor() const { return run_.config.checkpoint.monitor; }

  // Collective. The values of earlier validations, each with its step. Checkpoints that are no longer on the disk are
  // left out.
  void remember(const std::vector<std::pair<std::int64_t, double>>& values);
  // Collective. Writes the list of a resumed run, and deletes the checkpoints that it lacks: the run may have been
  // killed between a checkpoint and the list. Call it after checkpoints of later steps were set aside. A list of
  // another figure stays until the first checkpoint is kept. A disk that refuses is told, and the run goes on.
  void bring_up_to_date();
  // Collective. The figure of a validation after step run.done. If it is among the best, saves the state, and deletes
  // the checkpoint that is no longer among them. NaN is worse than any number and never kept. A disk that refuses is
  // told, and the run goes on.
  void note(double value);

  // From the best on.
  const std::vector<BestCheckpoint>& list() const { return list_; }
  std::filesystem::path path_of(std::int64_t step) const;

 private:
  std::filesystem::path folder() const { return checkpoints_.folder() / "best"; }
  bool add(std::int64_t step, double value);
  void write_list();

  Run& run_;
  Checkpoints& checkpoints_;
  std::vector<BestCheckpoint> list_;
};

}  // namespace reigen::train
