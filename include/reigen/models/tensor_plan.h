// How the layers of decoders are divided among ranks by tensor parallelism. The models themselves know nothing of it.
//
//   reigen::models::Llama model({.heads = 32, .kv_heads = 8});
//   model.initialize(seed);
//   auto divided = reigen::parallelize(model, mesh, reigen::models::tensor_plan(model.options()), {.sequence = true});
//
// A rank has some heads of queries with their heads of keys and values, some features of the MLP, and some rows of the
// embedding and of the last layer. So the model returns this rank's part of the scores: use
// vocab_parallel_cross_entropy() (reigen/parallel/tensor_operations.h) with vocab_part() as the loss.
// Numbers of heads and features need not be multiples of the number of ranks, but each rank must get at least one head
// of keys.
// Cost: that of 5 column and 2 row layers for a layer of Llama, 2 and 2 for one of Gpt (docs/tensor_parallel.md).
#pragma once

#include <cstdint>

#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"
#include "reigen/parallel/tensor_parallel.h"

namespace reigen::models {

parallel::Plan tensor_plan(const LlamaOptions& options);
parallel::Plan tensor_plan(const GptOptions& options);

// The part of the scores of `vocab` tokens that the model of this rank returns.
parallel::VocabPart vocab_part(std::int64_t vocab, const parallel::TensorParallel& divided);

}  // namespace reigen::models
