#include "reigen/models/llama_plan.h"

#include "reigen/layout/layout.h"

namespace reigen::models {

parallel::Plan tensor_plan(const LlamaOptions& options) {
  using parallel::column;
  using parallel::row;
  const std::int64_t width = options.dim / options.heads;
  const std::int64_t queries = width * (options.heads / options.kv_heads);  // of all heads that share a head of keys
  parallel::Plan plan = {{"model.embed_tokens", parallel::vocabulary()},
                         {"*.self_attn.q_proj", column({.block = queries})},
                         {"*.self_attn.[kv]_proj", column({.block = width})},
                         {"*.self_attn.o_proj", row({.block = queries})},
                         {"*.mlp.gate_proj", column()},
                         {"*.mlp.up_proj", column()},
                         {"*.mlp.down_proj", row()},
                         {"*.input_layernorm", parallel::sequence()},
                         {"*.post_attention_layernorm", parallel::sequence()},
                         {"model.norm", parallel::sequence()},
                         {"lm_head", column()}};
  return plan;
}

parallel::VocabPart vocab_part(const LlamaOptions& options, const parallel::TensorParallel& divided) {
  const Communicator& group = divided.region().group;
  return {.first = layout::chunk_of(options.vocab, 1, group.rank(), group.size()).first, .size = options.vocab};
}

}  // namespace reigen::models
