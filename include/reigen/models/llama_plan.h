// How the layers of a Llama are divided among ranks by tensor parallelism. The model itself (llama.h) knows nothing of it.
//
//   reigen::models::Llama model({.heads = 32, .kv_heads = 8});
//   model.initialize(seed);
//   auto divided = reigen::parallelize(model, mesh, reigen::models::tensor_plan(model.options()), {.sequence = true});
//
// A rank has some heads of queries with their heads of keys and values, some features of the MLP, and some rows of the
// embedding and of the last layer. So the model returns this rank's part of the scores: use
// vocab_parallel_cross_entropy() (reigen/parallel/tensor_operations.h) with vocab_part() as the loss.
// Cost for each layer and sample: two all_reduces of [T, dim] in forward and two in backward.
#pragma once

#include "reigen/models/llama.h"
#include "reigen/parallel/tensor_parallel.h"

namespace reigen::models {

parallel::Plan tensor_plan(const LlamaOptions& options);

// The part of the scores that the model of this rank returns.
parallel::VocabPart vocab_part(const LlamaOptions& options, const parallel::TensorParallel& divided);

}  // namespace reigen::models
