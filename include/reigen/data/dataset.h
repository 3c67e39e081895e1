// A dataset: N samples, any of which can be asked for at any time. Everything about order, shares and threads is the
// loader's business.
// Thread rule: gather() is called from several threads at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reigen/data/meaning.h"

namespace reigen::data {

// A dataset sets `input` and `target`, or, for samples of several tensors, `inputs` and `targets`. Whoever takes
// samples from a loader finds all four set: `input` is inputs[0], `target` is targets[0] (undefined where there are no
// targets).
struct Samples {
  at::Tensor input = {};                 // [B, ...]
  at::Tensor target = {};                // [B, ...]
  std::vector<at::Tensor> inputs = {};   // [B, ...] each: a table and a picture, tokens and their mask
  std::vector<at::Tensor> targets = {};  // the same
};

// One pass of a loader over a dataset.
struct Pass {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset() = default;
  Dataset(const Dataset&) = delete;  // used through DatasetPtr
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t size() const = 0;
  virtual const std::string& name() const = 0;  // for messages: "mnist train", "digits test"

  // Row i of the result is sample indices[i]; B = indices.size() >= 1, every index in 0..size()-1. Fresh tensors each
  // time. Runs beside the training threads: no parallel ATen operation in here.
  virtual Samples gather(std::span<const std::int64_t> indices) const = 0;

  // What a loader asks for. A dataset that augments its samples draws from (seed, epoch, index of the sample) and
  // nothing else, so that a sample does not depend on the rank, thread or batch that asks; gather() leaves it as it is.
  virtual Samples gather_in(const Pass& pass, std::span<const std::int64_t> indices) const;

  // What the numbers in its samples stand for (train/trainer.h compares it when a run goes on). May look at all files;
  // asked once, before the first sample. Nothing: it does not say.
  virtual Meaning meaning() const;

  // How many terms this sample adds to a loss that is a mean over terms: the valid tokens of a text. At least 1.
  virtual std::int64_t terms(std::int64_t index) const;
};

using DatasetPtr = std::shared_ptr<const Dataset>;

enum class Split { kTrain, kTest };

const char* to_string(Split split);  // "train", "test"

// Rows of CPU tensors with the same first size. Its meaning is their types and shapes, and a hash of integers and one
// of other numbers, which is told only; beyond 1 GiB, of rows at equal distances. Throws InvalidArgument.
DatasetPtr in_memory(const at::Tensor& input, const at::Tensor& target, std::string name = "in memory");
DatasetPtr in_memory(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& targets,
                     std::string name = "in memory");

}  // namespace reigen::data
