// A dataset: N samples that can be read in any order. The loader decides the order, the ranks' shares and the threads.
// Thread rule: a loader calls gather_in(), and so gather(), from several threads at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/container/split.h"
#include "reigen/data/meaning.h"

namespace reigen::data {

using NamedTensor = std::pair<std::string, at::Tensor>;

// The tensors of B samples. Each has a name, and a row for each sample: [B, ...]. The usual two are `input` and
// `target`; an undefined tensor is not there. Samples that need more tensors give them names: tokens and their "mask".
struct Samples {
  at::Tensor input = {};
  at::Tensor target = {};
  std::vector<NamedTensor> more = {};  // the other tensors

  // The tensor of this name. Throws InvalidArgument, with the names that there are, if there is none.
  const at::Tensor& at(std::string_view name) const;

  // Calls f(name, tensor) for each tensor that is there: `input`, `target`, then those of `more`.
  template <class F>
  void for_each(const F& f) const {
    if (input.defined()) f(std::string_view("input"), input);
    if (target.defined()) f(std::string_view("target"), target);
    for (const auto& [name, tensor] : more) f(std::string_view(name), tensor);
  }
  // Replaces each tensor that is there by f(tensor).
  template <class F>
  void transform(const F& f) {
    if (input.defined()) input = f(input);
    if (target.defined()) target = f(target);
    for (auto& [name, tensor] : more) tensor = f(tensor);
  }
};

// One pass of a loader over a dataset.
struct Pass {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

// The rows of one rank's part of a global batch.
struct BatchRows {
  Pass pass = {};
  std::vector<std::int64_t> indices = {};  // the sample of each row
  // For mixing samples of a global batch: position p of it has a partner, p + 1 if p is even and p - 1 if it is odd.
  // The last position of an odd number has none. `partners` are the partners' samples, or -1; it is empty if these rows
  // are no part of a global batch.
  std::vector<std::int64_t> partners = {};
  std::int64_t begin = 0;        // position of the first row in the global batch
  std::int64_t epoch_begin = 0;  // position of the global batch in the epoch
};

// The samples of one batch, which several threads make together.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  BatchMaker() = default;
  BatchMaker(const BatchMaker&) = delete;
  BatchMaker& operator=(const BatchMaker&) = delete;

  // Makes sample indices[row]. It is called once for each row, by several threads at once. After a DataError the
  // loader may leave the row out.
  virtual void make(std::size_t row) = 0;
  // Returns the samples of these rows, in this order, after make() of all rows. `rows` rises and is not empty.
  virtual Samples finish(std::span<const std::size_t> rows) = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset() = default;
  Dataset(const Dataset&) = delete;  // used through DatasetPtr
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t size() const = 0;
  virtual const std::string& name() const = 0;  // for messages: "mnist train", "digits test"

  // Returns the samples with these indices: row i of the result is sample indices[i]. B = indices.size() >= 1, and
  // every index is in 0..size()-1. Returns new tensors each time. gather() runs at the same time as training, so it
  // must not use parallel ATen operations.
  virtual Samples gather(std::span<const std::int64_t> indices) const = 0;

  // A loader calls this function instead of gather(). A dataset that augments its samples overrides it. The random
  // numbers of an augmentation must depend only on (seed, epoch, index of the sample), so that a sample is the same for
  // every rank, thread and batch. gather() returns the samples without augmentation; those of a pipeline are as its
  // steps make them in epoch 0 with seed 0.
  virtual Samples gather_in(const Pass& pass, std::span<const std::int64_t> indices) const;

  // A dataset whose samples take long to make returns an object here. Then all threads of a loader work on the same
  // batch, a sample each, and gather_in() is not called. Null: one thread makes a batch, by gather_in(). The samples
  // are those of gather_in().
  virtual std::unique_ptr<BatchMaker> batch_in(BatchRows rows) const;

  // What the numbers in the samples mean (meaning.h). When a run is resumed, Trainer compares the result with the
  // meaning in the checkpoint. The function may read all files of the dataset; it is called once, before the first
  // sample. An empty result says that the meaning is not known.
  virtual Meaning meaning() const;

  // How many terms the sample with this index adds to a loss that is a mean over terms, at least 1. For a text: the
  // number of its valid target tokens.
  virtual std::int64_t terms(std::int64_t index) const;
};

using DatasetPtr = std::shared_ptr<const Dataset>;

using container::Split;
using container::to_string;

// A dataset of CPU tensors that have the same first size; sample i is row i of each. Its meaning() consists of types,
// shapes and two hashes: one of all tensors of integers or booleans, and one of all other tensors. If a resumed run
// finds a change of the second hash, it reports the change and continues (Fact::is_told_only). Of a tensor of more than
// 1 GiB, only rows at equal distances are hashed. Throws InvalidArgument for tensors that do not fit together.
DatasetPtr in_memory(const at::Tensor& input, const at::Tensor& target, std::string name = "in memory");
// The same for samples of tensors with these names: in_memory({{"tokens", t}, {"mask", m}, {"target", y}}). Each name
// is given once.
DatasetPtr in_memory(const std::vector<NamedTensor>& tensors, std::string name = "in memory");

}  // namespace reigen::data
