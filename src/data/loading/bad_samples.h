// The samples that a loader has left out because they are damaged, and a maker of batches that can leave out samples of
// any dataset.
// Thread rule: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/data/dataset.h"

namespace reigen::data {

class BadSamples {
 public:
  // Counts sample `index` of the dataset with this name, and warns of it the first time. Throws DataError if more than
  // `most` different samples are damaged; with `most` 0 it is the error of the sample itself.
  void leave_out(std::int64_t index, const DataError& error, std::int64_t most, const std::string& dataset);
  std::int64_t count() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::int64_t> indices_;
};

// Makes each sample by a gather_in() of its own, or without a pass by a gather(), for datasets without batch_in().
std::unique_ptr<BatchMaker> one_by_one(const Dataset& data, const std::optional<Pass>& pass,
                                       std::vector<std::int64_t> indices);

}  // namespace reigen::data
