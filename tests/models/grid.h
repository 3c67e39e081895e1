// The layouts in which tests train a small Llama or GPT: how many ranks along each axis, and what they divide.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/schedule/generate.h"

namespace reigen::models {
namespace {

using parallel::Shard;

struct Grid {
  int replicate = 1;
  int shard = 1;
  int tp = 1;
  int cp = 1;
  int pp = 1;
  int virtual_stages = 1;
  schedule::Name schedule = schedule::Name::kOneFOneB;
  bool sequence = false;
  Shard stage = Shard::kNone;
  int accumulation = 1;
  bool tied = false;
  bool gpt = false;
  bool lamb = false;
  bool fused = false;  // Reigen's operations in place of LibTorch's
  std::string backend = "auto";
  bool even = false;        // sequences as with cp
  bool single = false;      // fp32
  int ranks_a_machine = 0;  // 0: all ranks are on one machine

  int data() const { return replicate * shard; }
  // 11 is not a multiple of any tp. With cp 2 and cp 3 there are 4 and 6 chunks.
  std::int64_t positions() const { return even || cp > 1 ? 12 : 11; }
  int ranks() const { return data() * cp * tp * pp; }
};

void PrintTo(const Grid& grid, std::ostream* out) {
  *out << (grid.gpt ? "gpt" : "llama") << ", dp_replicate " << grid.replicate << ", dp_shard " << grid.shard << ", tp "
       << grid.tp << (grid.sequence ? " with sequence" : "") << ", cp " << grid.cp << ", pp " << grid.pp << " x "
       << grid.virtual_stages << " " << to_text(grid.schedule) << ", shard " << to_text(grid.stage) << ", accumulation "
       << grid.accumulation << (grid.tied ? ", tied" : "") << (grid.lamb ? ", lamb" : "")
       << (grid.fused ? ", fused" : "") << (grid.single ? ", fp32" : "") << ", " << grid.backend;
}

struct Result {
  std::vector<double> losses = {};
  std::vector<double> norms = {};
  std::map<std::string, at::Tensor> weights = {};
};

constexpr std::int64_t kBatch = 8;
constexpr int kSteps = 3;

constexpr std::int64_t kVocab = 37;  // not a multiple of any tp

LlamaOptions llama_of(const Grid& grid) {
  return {.vocab = kVocab,
          .layers = 2,
          .dim = 32,
          .heads = 8,
          .kv_heads = 4,
          .hidden = 42,
          .context = 16,
          .tied = grid.tied,
          .kernels = grid.fused ? nn::Kernels::kFused : nn::Kernels::kTorch};
}

GptOptions gpt_of(const Grid& grid) {
  return {.vocab = kVocab,
          .layers = 2,
          .dim = 32,
          .heads = 4,
          .context = 16,
          .kernels = grid.fused ? nn::Kernels::kFused : nn::Kernels::kTorch};
}

at::Tensor tokens_of(std::int64_t positions, std::int64_t first, std::int64_t count) {
  const at::Tensor all = at::arange(kBatch * (positions + 1), at::kLong) * 7919;
  return (all * all % 1000003 % 37).view({kBatch, positions + 1}).narrow(0, first, count);
}

}  // namespace
}  // namespace reigen::models
