// The data of a run: those for training, those for validation, and their meaning (data/meaning.h).
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <cstdint>
#include <functional>
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

  // Collective. Prepares the DataModule, opens its data for training and validation, and sets the length of the run. If
  // the checkpoint was made with a different number of samples, the epoch begins anew. Throws DataError. Throws
  // InvalidArgument if ranks have different data or the data do not fit the checkpoint.
  void open(const checkpoint::Checkpoint* found);
  // Collective. Lets the DataModule prepare() and setup(), once. The functions below that open data do so too.
  void prepare();
  // Collective. Opens the data for validation alone, for a validation without a run. Does nothing if they are open.
  // Throws DataError if there are no samples, and InvalidArgument if the DataModule has no such data.
  void open_validation();
  // Closes the training data. open() opens them again.
  void release() { loader_.reset(); }

  data::Loader& loader() { return *loader_; }
  const data::Loader& loader() const { return *loader_; }
  // Collective. Opens other data of the DataModule, for an evaluation. `name` is the function's, for messages. Throws
  // as open_validation().
  data::DatasetPtr open_for(const char* name, const std::function<data::DatasetPtr(DataModule&)>& open);
  bool has_training() const { return loader_.has_value(); }
  bool has_validation() const { return validation_ != nullptr; }
  const data::Dataset& validation() const { return *validation_; }

  // The global batch, or all samples if there are fewer.
  std::int64_t samples_per_step() const;
  std::int64_t epochs_to_see() const { return (run_.total + loader_->steps() - 1) / loader_->steps(); }

  // The description of the run that checkpoints store: options and meaning of the data.
  const TextMap& described() const { return described_; }
  // The metadata that the model's file holds next to its tensors.
  const TextMap& metadata() const { return metadata_; }

 private:
  void compare_between_ranks(const data::Meaning& meaning);

  Run& run_;
  std::optional<data::Loader> loader_;
  data::DatasetPtr validation_;
  bool is_prepared_ = false;
  TextMap described_;
  TextMap metadata_ = {{"format", "pt"}};
};

}  // namespace reigen::train
