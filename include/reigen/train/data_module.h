// The data of a training: what the trainer, Trainer::validate(), test() and predict() read.
//
//   struct Flowers : reigen::train::DataModule {
//     reigen::data::DatasetPtr training() override { return reigen::data::image_folder("flowers", {}).data; }
//     reigen::data::DatasetPtr validation() override { ... }
//   };
//
// Thread rule: a DataModule belongs to one rank. The loader's threads read from the datasets that it returns.
#pragma once

#include <string>

#include "reigen/data/dataset.h"

namespace reigen::train {

class DataModule {
 public:
  virtual ~DataModule() = default;
  DataModule() = default;
  DataModule(const DataModule&) = delete;  // owns open data
  DataModule& operator=(const DataModule&) = delete;

  // Work for one process of each machine, such as unpacking an archive: the first rank of a machine does it while the
  // others wait. Ranks of other machines do the same at the same time, so it must not write where another machine does.
  virtual void prepare() {}
  // Every rank calls it after prepare() and before the first of the functions below.
  virtual void setup() {}

  // The first call opens the data; more calls may follow and return the same. The trainer calls validation() before the
  // first step, so that a damaged file is found early. Null means that there are no such data: without validation()
  // nothing is validated.
  virtual data::DatasetPtr training() = 0;
  virtual data::DatasetPtr validation() { return nullptr; }
  virtual data::DatasetPtr test() { return validation(); }
  virtual data::DatasetPtr predict() { return test(); }

  // A name for the samples of training(); a run's first line prints it after their number: "20000 drawn digits".
  virtual std::string kind_of_samples() const { return "samples"; }
};

}  // namespace reigen::train
