// The table of divided weights: what forwards do with them instead of LibTorch's operations.
//
// How it works: a forward calls an operation of LibTorch with a weight, or with a view of it (its transpose). On a
// thread that uses divided weights, each operation first passes through intercepted() (tensor/hooks/intercept.h,
// Where::kUse). It looks the operation's tensors up in the table (tensor/hooks/taken_over.h). If one of them is a
// divided weight, the operation is replaced by that of tensor_operations.h, or refused. All other operations run as
// they are. The table belongs to the process, because backward may recompute a forward on another thread.
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "reigen/parallel/tensor_parallel.h"

namespace reigen::parallel {

// A weight in the table.
struct Divided {
  std::string name;  // the parameter's name in the model
  Style::Kind kind = Style::Kind::kColumn;
  bool gather_output = false;
  VocabPart vocabulary = {};
  Region region = {};
};

// Whether ranks have the whole weight, and not parts of it.
constexpr bool is_whole(Style::Kind kind) {
  return kind == Style::Kind::kSequence || kind == Style::Kind::kPositions || kind == Style::Kind::kShared;
}

// Whether a linear layer with such a weight is computed by Reigen.
constexpr bool computes_layers(Style::Kind kind) { return !is_whole(kind) || kind == Style::Kind::kShared; }

// The weight is in the table until the tensor is destroyed.
void remember(const at::Tensor& weight, Divided divided);

// Forwards of this thread use divided weights from now on.
void use_divided_weights_on_this_thread();

}  // namespace reigen::parallel
