// A dataset: N samples, any of which can be asked for at any time. Everything about order, shares and threads is the
// loader's business.
// Thread rule: gather() is called from several threads at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace reigen::data {

struct Samples {
  at::Tensor input;   // [B, ...]
  at::Tensor target;  // [B, ...]
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
};

using DatasetPtr = std::shared_ptr<const Dataset>;

enum class Split { kTrain, kTest };

const char* to_string(Split split);  // "train", "test"

// Rows of two CPU tensors with the same first size. Throws InvalidArgument.
DatasetPtr in_memory(const at::Tensor& input, const at::Tensor& target, std::string name = "in memory");

}  // namespace reigen::data
