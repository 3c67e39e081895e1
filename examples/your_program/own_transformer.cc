// A transformer of your own. The ranks shard its weights, gradients and optimizer states (ZeRO-3, FSDP). A rank gathers
// the weights of a block for the block's forward and again for its backward. At all other times the rank holds only its
// shard of these weights.
//
//   reigen run -n 2 build/own_transformer
#include <reigen/nn/without_memory.h>
#include <reigen/reigen.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>

constexpr std::int64_t kTokens = 16, kLength = 12, kWidth = 32, kLayers = 3;

struct EmbeddingsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& tokens) {  // [batch, length] -> [length, batch, width]
    const auto places = torch::arange(tokens.size(1));
    return (of_token(tokens) + of_place(places)).transpose(0, 1);
  }
  torch::nn::Embedding of_token = register_module("of_token", torch::nn::Embedding(kTokens, kWidth));
  torch::nn::Embedding of_place = register_module("of_place", torch::nn::Embedding(kLength, kWidth));
};

struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto length = x.size(0);
    const auto later = torch::full({length, length}, -INFINITY).triu(1);  // no token attends to later tokens
    const auto y = norm1(x);
    const auto seen = x + std::get<0>(attention(y, y, y, at::Tensor(), true, later));
    return seen + down(torch::gelu(up(norm2(seen))));
  }
  torch::nn::LayerNorm norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::LayerNorm norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::MultiheadAttention attention = register_module("attention", torch::nn::MultiheadAttention(kWidth, 4));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
};

// The forward runs the parts of the model as units. Each unit's weights are gathered before the unit runs and freed
// afterwards.
struct Transformer : torch::nn::Module {
  Transformer() {
    const auto add = [&](const std::string& name, const auto& part) {
      parts.emplace_back(name, register_module(name, part));
    };
    add("embeddings", std::make_shared<EmbeddingsImpl>());
    for (int i = 0; i < kLayers; ++i) add("block" + std::to_string(i), std::make_shared<BlockImpl>());
    add("head", std::make_shared<torch::nn::LinearImpl>(kWidth, kTokens));
  }
  at::Tensor forward(const at::Tensor& tokens) { return reigen::nn::fold(parts, tokens); }
  std::vector<reigen::nn::Unit> units() const { return parts; }
  std::vector<reigen::nn::Unit> parts;
};

int main() {
  auto world = reigen::init();
  // Each sequence counts up by a fixed step of its own. Two tokens are therefore enough to predict the next token.
  const auto start = torch::arange(240).remainder(kTokens).unsqueeze(1);
  const auto by = torch::arange(240).remainder(7).unsqueeze(1) + 1;
  const auto text = (start + by * torch::arange(kLength + 1)).remainder(kTokens);
  const auto data = reigen::data::in_memory(text.narrow(1, 0, kLength), text.narrow(1, 1, kLength), "counting");
  auto loader = reigen::data::Loader(data, {.global_batch = 24, .shuffle = true}, world);

  // No rank ever holds the whole model. The model is created without memory for its weights, and each rank makes the
  // initial values of its own shard.
  std::optional<reigen::nn::WithoutMemory> without(std::in_place);
  Transformer model;
  without.reset();
  auto parallel = reigen::data_parallel(
      model, world, {.shard = reigen::Shard::kParameters, .initialize = [&] { reigen::nn::initialize(model, 0); }});
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 3e-3});

  int step = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      const auto scores = parallel(batch.input).permute({1, 2, 0});  // [batch, tokens, length]
      const auto loss = torch::cross_entropy_loss(scores, batch.target);
      (loss * batch.weight).backward();
      optimizer.step();
      optimizer.zero_grad();
      double sum = loss.item<double>() * static_cast<double>(batch.count);
      world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
      if (++step % 5 == 0 && world.rank() == 0) {
        std::printf("step %d loss %.7f\n", step, sum / static_cast<double>(batch.global_count));
      }
    }
  }
}
