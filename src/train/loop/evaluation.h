// Runs the model over a dataset, without gradients and in eval mode: for validation, test and prediction.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "data/loading/bad_samples.h"
#include "data/loading/prefetcher.h"
#include "reigen/data/dataset.h"
#include "reigen/data/sampler.h"
#include "reigen/train/metrics.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

class Evaluation {
 public:
  Evaluation(Run& run, TrainedModel& model) : run_(run), model_(model) {}

  struct Over {
    const data::Dataset& data;
    // Gets each batch of this rank, on the device. `counts` is false for a batch that only takes part in collective
    // calls.
    std::function<void(const data::Samples& batch, bool counts)> step;
    std::int64_t most = 0;     // the first samples of the data; 0: all
    std::int64_t max_bad = 0;  // damaged samples that may be left out (LoaderOptions::max_bad)
    bool may_end = false;      // whether a request to stop ends it early; run.stop is set then
  };
  // Collective. Each sample is taken once, because every rank takes its share. Uses the average of the weights if there
  // is one. Returns the figures of all ranks that the steps have logged.
  Figures run(const Over& over);

  // The samples of this rank, in order: positions begin to end of the dataset.
  data::Range share(std::int64_t samples) const;

 private:
  using IndicesOf = std::function<std::vector<std::int64_t>(std::int64_t call)>;
  void run_some(const Over& over, const std::vector<std::int64_t>& indices, const data::Samples& samples, bool counts);
  void run_in_stages(const Over& over, std::int64_t first, std::int64_t calls, const IndicesOf& indices_of);
  void take(const Over& over, const std::vector<std::int64_t>& indices, const data::Samples& samples, bool counts);
  data::Samples samples_of(const Over& over, const std::vector<std::int64_t>& indices);
  data::Samples any_sample(const Over& over);
  std::int64_t calls(std::int64_t samples) const;
  bool hears_of_stop();
  data::Workers workers() const;

  Run& run_;
  TrainedModel& model_;
  Metrics* metrics_ = nullptr;  // of the run that is under way
  int workers_ = 0;             // at the end of the evaluation before
  std::map<const data::Dataset*, data::BadSamples> bad_;
};

}  // namespace reigen::train
