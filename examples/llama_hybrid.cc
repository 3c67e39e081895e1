// A Llama on a mesh of ranks: neighbouring ranks divide each layer (tensor parallelism), the others shard weights,
// gradients and optimizer states (FSDP), and its layers may be divided into stages too (pipeline parallelism). It
// learns to predict the next character of a text.
//
//   reigen run -n 4 build/bin/llama_hybrid               2 x 2 ranks, on Reigen's documents
//   reigen run -n 4 build/bin/llama_hybrid 2 2           2 ranks divide each layer, 2 stages
//   reigen run -n 4 build/bin/llama_hybrid 4 1 my.txt    4 ranks divide each layer, on your text
//
// The last line says tokens/s, the model FLOPs utilisation, the bubble of the stages and the memory.
// The loss of each step is that of one rank, for any mesh: compare with `llama_hybrid 1`.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "reigen/data/text.h"
#include "reigen/models/llama.h"
#include "reigen/models/tensor_plan.h"
#include "reigen/reigen.h"
#include "reigen/train/gemm_peak.h"

namespace {

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kContext = 256;

// `seconds` of each step; `flops` of one sequence.
void report(const reigen::Communicator& world, std::vector<double> seconds, double bubble, double flops) {
  const double peak = reigen::train::measure_gemm_peak(world, at::kCPU, at::kFloat);
  std::sort(seconds.begin(), seconds.end());
  const double step_s = seconds.at(seconds.size() / 2);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  if (world.rank() != 0) return;
  fmt::print("{:.0f} tokens/s, MFU {:.1f} % of {:.3f} TFLOP/s (measured), bubble {:.1f} %, peak memory {} MiB a rank\n",
             kBatch * kContext / step_s, 100 * flops * kBatch / step_s / peak, peak * 1e-12, 100 * bubble,
             used.ru_maxrss / 1024);
}

}  // namespace

int main(int argc, char** argv) try {
  const int tp = argc > 1 ? std::stoi(argv[1]) : 2;
  const int pp = argc > 2 ? std::stoi(argv[2]) : 1;
  constexpr std::int64_t kSteps = 20;
  auto world = reigen::init();
  const reigen::Mesh mesh(world, {{"pp", pp}, {"dp_shard", reigen::mesh::kRest}, {"tp", tp}});
  const auto data_ranks = mesh.along("dp_shard");

  auto corpus = std::make_shared<const reigen::data::Corpus>(argc > 3 ? reigen::data::read_corpus(argv[3])
                                                                      : reigen::data::own_documents());
  auto text = reigen::data::text_windows(corpus, {.context = kContext});
  // All ranks that divide the model compute on the same samples. Each part of a batch is a micro-batch of the pipeline.
  auto loader =
      reigen::data::Loader(text, {.global_batch = kBatch, .shuffle = true, .micro_batch = pp > 1 ? 1 : 0}, data_ranks);

  const reigen::models::LlamaOptions sizes{.vocab = corpus->encoding().size()};
  reigen::models::Llama model(sizes);
  model.initialize(0);
  const auto divided = reigen::parallelize(model, mesh, reigen::models::tensor_plan(sizes), {.sequence = true});
  const auto stages = reigen::pipeline(model, mesh);
  auto parallel = reigen::data_parallel(
      model, world, {.shard = reigen::Shard::kParameters, .tensor_parallel = divided, .pipeline = stages});
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 3e-4});
  const auto part = reigen::models::vocab_part(sizes.vocab, divided);

  const std::string table = mesh.table();
  if (world.rank() == 0) fmt::print("{}\n{}\n", mesh.to_text(), table);
  std::int64_t step = 0;
  std::vector<double> seconds;
  for (auto& batch : loader.epoch(0)) {
    const auto start = std::chrono::steady_clock::now();
    double sum = 0;  // of the losses, on the ranks of the last stage
    const auto micro = [&](int i) -> const auto& { return batch.parts[static_cast<std::size_t>(i)]; };
    const auto loss_of = [&](int i) {
      // The model gives this rank's part of the scores, and no rank gathers them.
      auto loss = reigen::parallel::vocab_parallel_cross_entropy(model.forward(micro(i).input), micro(i).target, part,
                                                                 divided.region().group);
      sum += loss.item<double>() * static_cast<double>(micro(i).terms);
      return loss * micro(i).weight;
    };
    stages.step(parallel, static_cast<int>(batch.parts.size()),
                {.input = [&](int i) { return reigen::nn::Carry{micro(i).input}; }, .loss = loss_of});
    optimizer.step(
        {.gradient_factor = reigen::optim::clip_factor(reigen::optim::gradient_norm(parallel.parameters()).norm, 1.0)});
    optimizer.zero_grad();
    world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
    sum /= tp;  // all ranks that divide a layer have its loss
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    seconds.push_back(time.count());
    if (world.rank() == 0) {
      fmt::print("step {} loss {:.4f}  {:.0f} tokens/s, {:.1f} ms of exposed communication\n", step + 1,
                 sum / static_cast<double>(batch.global_terms), static_cast<double>(batch.global_terms) / time.count(),
                 1e3 * (parallel.last_exposed_communication().count() + stages.last().waiting));
    }
    if (++step == kSteps) break;
  }
  report(world, seconds, stages.gather_last().bubble, reigen::models::training_flops(sizes, kContext));
  return 0;
} catch (const reigen::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
