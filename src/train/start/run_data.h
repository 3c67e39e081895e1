// The data of a run: what it trains with, what it is scored with, and what both mean.
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/data/dataset.h"
#include "reigen/data/loader.h"
#include "train/run/run.h"
#include "train/start/meaning.h"

namespace reigen::train {

class RunData {
 public:
  explicit RunData(Run& run) : run_(run) {}

  // Collective. Opens both, and sets the run's length; a checkpoint of other data of the same meaning sets its position
  // back to the beginning of the epoch. Throws DataError, and InvalidArgument where ranks have different data or they
  // do not go together with the checkpoint.
  void open(const checkpoint::Checkpoint* found);
  // The test data alone, where they are not open: validation without a run.
  void open_test();
  // Training data are opened anew.
  void release() { loader_.reset(); }

  data::Loader& loader() { return *loader_; }
  const data::Loader& loader() const { return *loader_; }
  const data::Dataset& test() const { return *test_; }

  // A data set may be smaller than a batch.
  std::int64_t samples_per_step() const;
  std::int64_t epochs_to_see() const { return (run_.total + loader_->steps() - 1) / loader_->steps(); }

  // What a checkpoint remembers of the run: options and meaning.
  const TextMap& described() const { return described_; }
  // What the model's file says beside its tensors.
  const TextMap& metadata() const { return metadata_; }

 private:
  void compare_between_ranks(const data::Meaning& meaning);

  Run& run_;
  std::optional<data::Loader> loader_;
  data::DatasetPtr test_;
  TextMap described_;
  TextMap metadata_ = {{"format", "pt"}};
};

}  // namespace reigen::train
