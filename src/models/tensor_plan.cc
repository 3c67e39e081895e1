#include "reigen/models/tensor_plan.h"

#include "reigen/layout/layout.h"

namespace reigen::models {

using parallel::column;
using parallel::row;
using parallel::sequence;

parallel::Plan tensor_plan(const LlamaOptions& options) {
  const std::int64_t width = options.dim / options.heads;
  const std::int64_t queries = width * (options.heads / options.kv_heads);  // of all heads that share a head of keys
  return {{"model.embed_tokens", parallel::vocabulary()},
          {"*.self_attn.q_proj", column({.block = queries})},
          {"*.self_attn.[kv]_proj", column({.block = width})},
          {"*.self_attn.o_proj", row({.block = queries})},
          {"*.mlp.gate_proj", column()},
          {"*.mlp.up_proj", column()},
          {"*.mlp.down_proj", row()},
          {"*.input_layernorm", sequence()},
          {"*.post_attention_layernorm", sequence()},
          {"model.norm", sequence()},
          {"lm_head", column()}};
}

parallel::Plan tensor_plan(const GptOptions& options) {
  const std::int64_t width = options.dim / options.heads;
  return {{"embed.tok", parallel::vocabulary()},
          {"embed.pos", parallel::positions()},
          {"blocks.*.n[12]", sequence()},
          {"blocks.*.qkv", column({.block = width, .sections = 3})},
          {"blocks.*.out", row({.block = width})},
          {"blocks.*.up", column()},
          {"blocks.*.down", row()},
          {"head.norm", sequence()},
          {"head.linear", column()}};
}

parallel::VocabPart vocab_part(std::int64_t vocab, const parallel::TensorParallel& divided) {
  const Communicator& group = divided.region().group;
  return {.first = layout::chunk_of(vocab, 1, group.rank(), group.size()).first, .size = vocab};
}

}  // namespace reigen::models
