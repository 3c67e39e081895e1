// A transformer of your own on a mesh of ranks: neighbouring ranks divide its layers (tensor parallelism), and its
// blocks are divided into stages (pipeline parallelism). The losses are those of one rank.
//
//   reigen run -n 4 build/own_pipeline 2 2     2 ranks divide each layer, 2 stages
//   build/own_pipeline 1 1                     one rank
#include <reigen/reigen.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>

constexpr std::int64_t kTokens = 16, kLength = 12, kWidth = 32, kHead = 8;

struct EmbeddingsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& tokens) { return of_token(tokens) + of_place(torch::arange(tokens.size(1))); }
  torch::nn::Embedding of_token = register_module("of_token", torch::nn::Embedding(kTokens, kWidth));
  torch::nn::Embedding of_place = register_module("of_place", torch::nn::Embedding(kLength, kWidth));
};

struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto y = norm1(x);
    // -1: a rank may have some of the heads only.
    const auto heads = [&](torch::nn::Linear& layer) { return layer(y).unflatten(2, {-1, kHead}).transpose(1, 2); };
    const auto mixed = at::scaled_dot_product_attention(heads(q), heads(k), heads(v), {}, 0, /*is_causal=*/true);
    const auto seen = x + out(mixed.transpose(1, 2).flatten(2));
    return seen + down(torch::gelu(up(norm2(seen))));
  }
  torch::nn::LayerNorm norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::LayerNorm norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::Linear q = register_module("q", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear k = register_module("k", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear v = register_module("v", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
};

struct Transformer : torch::nn::Module {
  Transformer() {
    const auto add = [&](const std::string& name, const auto& part) {
      parts.emplace_back(name, register_module(name, part));
    };
    add("embeddings", std::make_shared<EmbeddingsImpl>());
    for (int i = 0; i < 4; ++i) add("block" + std::to_string(i), std::make_shared<BlockImpl>());
    add("head", std::make_shared<torch::nn::LinearImpl>(kWidth, kTokens));
  }
  at::Tensor forward(const at::Tensor& tokens) { return reigen::nn::fold(parts, tokens); }
  std::vector<reigen::nn::Unit> units() const { return parts; }
  std::vector<reigen::nn::Unit> parts;
};

// Everything below is beside the model: 40 lines, of which the first nine make data.
int main(int argc, char** argv) {
  const int tp = argc > 2 ? std::stoi(argv[1]) : 2, pp = argc > 2 ? std::stoi(argv[2]) : 2;
  auto world = reigen::init();
  // Each sequence counts up by a fixed step of its own.
  const auto start = torch::arange(240).remainder(kTokens).unsqueeze(1);
  const auto by = torch::arange(240).remainder(7).unsqueeze(1) + 1;
  const auto text = (start + by * torch::arange(kLength + 1)).remainder(kTokens);
  const auto data = reigen::data::in_memory(text.narrow(1, 0, kLength), text.narrow(1, 1, kLength), "counting");

  const reigen::Mesh mesh(world, {{"pp", pp}, {"dp_shard", reigen::mesh::kRest}, {"tp", tp}});
  auto loader = reigen::data::Loader(data, {.global_batch = 24, .micro_batch = 6}, mesh.along("dp_shard"));
  Transformer model;
  reigen::nn::initialize(model, 0);
  using namespace reigen::parallel;
  const auto divided = parallelize(
      model, mesh,
      {{"*.[qkv]", column({.block = kHead})}, {"*.out", row({.block = kHead})}, {"*.up", column()}, {"*.down", row()}});
  const auto stages = pipeline(model, mesh);
  auto parallel = data_parallel(model, world, {.tensor_parallel = divided, .pipeline = stages});
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 3e-3});
  int step = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      double sum = 0;  // of the losses, on the ranks of the last stage
      const auto loss = [&](int i) {
        const auto& part = batch.parts[static_cast<std::size_t>(i)];
        const auto mean = torch::cross_entropy_loss(model.forward(part.input).transpose(1, 2), part.target);
        sum += mean.item<double>() * static_cast<double>(part.count);
        return mean * part.weight;
      };
      const auto input = [&](int i) { return reigen::nn::Carry{batch.parts[static_cast<std::size_t>(i)].input}; };
      stages.step(parallel, static_cast<int>(batch.parts.size()), {.input = input, .loss = loss});
      optimizer.step();
      optimizer.zero_grad();
      world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
      if (++step % 5 == 0 && world.rank() == 0) {
        std::printf("step %d loss %.7f\n", step, sum / tp / static_cast<double>(batch.global_count));
      }
    }
  }
}
