// Every layout of a Llama and of a GPT on a grid of ranks gives the losses, gradient norms and weights of one rank.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "comm/agree.h"
#include "models/trained_grid.h"

namespace reigen::models {
namespace {

void expect_the_numbers_of_one_rank(const Grid& grid) { expect_the_same(grid, trained(grid)); }

// What a rank gives to the whole weights, as bytes: for each tensor a line, then its elements.
std::string to_bytes(const std::vector<tensor::NamedTensor>& parts) {
  std::ostringstream out;
  for (const tensor::NamedTensor& item : parts) {
    const layout::Part part = item.part.value_or(layout::whole(item.whole_shape()));
    out << item.name;
    const auto write = [&](const layout::Shape& numbers) {
      out << ' ' << numbers.size();
      for (const std::int64_t number : numbers) out << ' ' << number;
    };
    write(item.whole_shape());
    write(part.offset);
    write(part.shape);
    write(part.view);
    const at::Tensor elements = item.tensor.detach().contiguous().view({-1});
    out << ' ' << part.first << ' ' << part.count << ' ' << elements.numel() << '\n';
    out.write(static_cast<const char*>(elements.const_data_ptr()), static_cast<std::streamsize>(elements.nbytes()));
  }
  return out.str();
}

std::vector<tensor::NamedTensor> from_bytes(const std::string& bytes, at::ScalarType type) {
  std::istringstream in(bytes);
  std::vector<tensor::NamedTensor> parts;
  const auto read = [&] {
    std::size_t size = 0;
    in >> size;
    layout::Shape numbers(size);
    for (std::int64_t& number : numbers) in >> number;
    return numbers;
  };
  std::string name;
  while (in >> name) {
    tensor::NamedTensor item{};
    item.name = name;
    layout::Part part;
    item.shape = read();
    part.offset = read();
    part.shape = read();
    part.view = read();
    std::int64_t count = 0;
    in >> part.first >> part.count >> count;
    in.get();
    item.part = part;
    item.tensor = at::empty({count}, type);
    in.read(static_cast<char*>(item.tensor.mutable_data_ptr()), static_cast<std::streamsize>(item.tensor.nbytes()));
    parts.push_back(std::move(item));
  }
  return parts;
}

// Each pair of values of two axes of the contract that fits on 8 ranks is in one of these.
std::vector<Grid> pairs_of_values() {
  return {Grid{.shard = 4, .cp = 2, .stage = Shard::kParameters, .gpt = true},
          Grid{.shard = 2, .tp = 2, .pp = 2, .sequence = true, .accumulation = 4, .backend = "tcp"},
          Grid{.tp = 4, .pp = 2, .virtual_stages = 2, .schedule = schedule::Name::kInterleaved, .tied = true},
          Grid{.shard = 2,
               .cp = 2,
               .pp = 2,
               .virtual_stages = 2,
               .schedule = schedule::Name::kInterleaved,
               .stage = Shard::kOptimizer,
               .accumulation = 4,
               .gpt = true,
               .backend = "tcp"},
          Grid{.shard = 2, .tp = 2, .cp = 2, .sequence = true, .stage = Shard::kGradients, .tied = true},
          Grid{.cp = 2, .pp = 4, .backend = "tcp"},
          Grid{.shard = 2, .tp = 4, .sequence = true, .stage = Shard::kOptimizer, .accumulation = 4},
          Grid{.shard = 4,
               .pp = 2,
               .virtual_stages = 2,
               .schedule = schedule::Name::kInterleaved,
               .stage = Shard::kGradients,
               .backend = "tcp"},
          Grid{.tp = 2, .pp = 4, .sequence = true, .accumulation = 4, .gpt = true},
          Grid{.shard = 2,
               .tp = 2,
               .pp = 2,
               .virtual_stages = 2,
               .schedule = schedule::Name::kInterleaved,
               .sequence = true,
               .stage = Shard::kParameters,
               .accumulation = 4,
               .tied = true},
          Grid{.shard = 4, .tp = 2, .stage = Shard::kOptimizer, .tied = true},
          Grid{.shard = 2, .pp = 4, .stage = Shard::kGradients, .accumulation = 4, .tied = true, .backend = "tcp"},
          Grid{.tp = 4, .cp = 2, .sequence = true, .gpt = true},
          Grid{.shard = 4, .tp = 2, .sequence = true, .tied = true, .backend = "tcp"},
          Grid{.shard = 2, .tp = 4, .stage = Shard::kGradients, .gpt = true},
          Grid{.shard = 2, .pp = 4, .stage = Shard::kParameters, .accumulation = 4, .backend = "tcp"},
          Grid{.shard = 2, .pp = 4, .stage = Shard::kOptimizer, .accumulation = 4, .tied = true},
          Grid{.shard = 2, .tp = 4, .stage = Shard::kParameters, .tied = true, .backend = "tcp"}};
}

// The same with ranks that are processes: rank 0 puts the weights together and compares. The ranks train all layouts
// one after the other in one group, because each start of a process with LibTorch takes a third of a second.
class ProcessLayouts : public ::testing::TestWithParam<std::string> {};

TEST_P(ProcessLayouts, GiveTheNumbersOfOneRank) {
  testing::run_ranks(
      {.ranks = 8, .kind = RankKind::kProcesses, .backend = GetParam(), .limit = std::chrono::seconds(200)},
      [&](Rank& rank) {
        for (const Grid& grid : pairs_of_values()) {
          if (grid.backend != GetParam()) continue;
          SCOPED_TRACE(::testing::PrintToString(grid));
          ASSERT_EQ(grid.ranks(), rank.size());
          Result result;
          std::vector<tensor::NamedTensor> own;
          train(grid, rank.world(), result, [&](const std::vector<tensor::NamedTensor>& parts) { own = parts; });
          const auto all = comm::attempt_all(rank.world(), "weights", [&] { return to_bytes(own); });
          if (rank.rank() != 0) continue;
          for (const std::string& one : all) collect(from_bytes(one, at::kDouble), result.weights);
          expect_the_same(grid, result);
        }
      });
}

INSTANTIATE_TEST_SUITE_P(Pairs, ProcessLayouts, ::testing::Values("auto", "tcp"));

class Layouts : public ::testing::TestWithParam<Grid> {};

TEST_P(Layouts, GiveTheNumbersOfOneRank) { expect_the_numbers_of_one_rank(GetParam()); }

// All layouts of the contract on at most 8 ranks. A step of the loops is left out if it is that of another one.
std::vector<Grid> whole_grid() {
  std::vector<Grid> grids;
  const auto add = [&](Grid grid) {
    const int stages = grid.pp * grid.virtual_stages;
    const bool is_possible = grid.ranks() <= 8 && stages <= (grid.gpt ? 4 : 5) &&
                             grid.data() * grid.accumulation <= kBatch &&
                             !(grid.tied && grid.pp > 1 && grid.stage == Shard::kParameters && grid.backend == "tcp");
    if (is_possible) grids.push_back(std::move(grid));
  };
  for (const int shard : {1, 2, 4}) {
    for (const Shard stage : {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
      if (shard == 1 && stage != Shard::kNone) continue;
      for (const int tp : {1, 2, 4}) {
        for (const bool sequence : {false, true}) {
          if (tp == 1 && sequence) continue;
          for (const int cp : {1, 2}) {
            for (const int pp : {1, 2, 4}) {
              for (const int stages : {1, 2}) {
                if (pp == 1 && stages > 1) continue;
                for (const int accumulation : {1, 4}) {
                  for (const int model : {0, 1, 2}) {
                    add({.shard = shard,
                         .tp = tp,
                         .cp = cp,
                         .pp = pp,
                         .virtual_stages = stages,
                         .schedule = stages > 1 ? schedule::Name::kInterleaved : schedule::Name::kOneFOneB,
                         .sequence = sequence,
                         .stage = stage,
                         .accumulation = accumulation,
                         .tied = model == 1,
                         .gpt = model == 2,
                         .backend = grids.size() % 3 == 0 ? "tcp" : "auto"});
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return grids;
}

// scripts/check/layouts runs it.
TEST(WholeGrid, DISABLED_GivesTheNumbersOfOneRank) {
  std::size_t count = 0;
  for (Grid grid : whole_grid()) {
    for (const bool single : {false, true}) {
      grid.single = single;
      SCOPED_TRACE(::testing::PrintToString(grid));
      expect_the_numbers_of_one_rank(grid);
      ++count;
    }
  }
  std::printf("%zu layouts\n", count);
}

INSTANTIATE_TEST_SUITE_P(
    Grids, Layouts,
    ::testing::Values(Grid{.shard = 2}, Grid{.tp = 2}, Grid{.tp = 4}, Grid{.tp = 2, .sequence = true},
                      Grid{.tp = 4, .sequence = true}, Grid{.shard = 2, .tp = 2, .tied = true},
                      Grid{.shard = 2, .tp = 2, .sequence = true, .stage = Shard::kOptimizer},
                      Grid{.shard = 2, .tp = 2, .sequence = true, .stage = Shard::kGradients, .accumulation = 2},
                      Grid{.shard = 2, .tp = 2, .stage = Shard::kParameters, .tied = true, .backend = "tcp"},
                      Grid{.replicate = 2, .tp = 3, .sequence = true, .accumulation = 4},
                      Grid{.replicate = 2, .shard = 2, .tp = 2, .stage = Shard::kParameters, .backend = "tcp"},
                      Grid{.replicate = 2,
                           .shard = 2,
                           .tp = 2,
                           .sequence = true,
                           .stage = Shard::kGradients,
                           .tied = true,
                           .backend = "tcp"},
                      Grid{.shard = 2, .tp = 2, .sequence = true, .stage = Shard::kOptimizer, .lamb = true},
                      Grid{.tp = 3, .lamb = true}, Grid{.tp = 2, .sequence = true, .fused = true},
                      Grid{.shard = 2, .tp = 2, .sequence = true, .gpt = true, .fused = true},
                      Grid{.tp = 2, .gpt = true}, Grid{.tp = 3, .sequence = true, .gpt = true},
                      Grid{.shard = 2, .tp = 2, .sequence = true, .stage = Shard::kOptimizer, .gpt = true},
                      Grid{.shard = 2, .tp = 4, .stage = Shard::kParameters, .gpt = true, .backend = "tcp"}));

INSTANTIATE_TEST_SUITE_P(
    Sequences, Layouts,
    ::testing::Values(
        Grid{.cp = 2}, Grid{.cp = 3}, Grid{.cp = 2, .gpt = true}, Grid{.cp = 2, .accumulation = 2, .tied = true},
        Grid{.shard = 2, .cp = 2, .stage = Shard::kOptimizer}, Grid{.shard = 2, .cp = 2, .stage = Shard::kGradients},
        Grid{.shard = 2, .cp = 2, .stage = Shard::kParameters, .backend = "tcp"},
        Grid{.replicate = 2, .shard = 2, .cp = 2, .stage = Shard::kGradients, .gpt = true, .backend = "tcp"},
        Grid{.tp = 2, .cp = 2}, Grid{.tp = 2, .cp = 2, .sequence = true, .gpt = true},
        Grid{.tp = 2, .cp = 3, .sequence = true, .fused = true}, Grid{.cp = 2, .pp = 2, .accumulation = 4},
        Grid{.tp = 2, .cp = 2, .pp = 2, .sequence = true, .accumulation = 2, .tied = true},
        Grid{.shard = 2,
             .cp = 2,
             .pp = 2,
             .virtual_stages = 2,
             .schedule = schedule::Name::kInterleaved,
             .stage = Shard::kParameters,
             .accumulation = 4,
             .gpt = false,
             .backend = "tcp"}));

// Tensor parallelism inside two machines, sharded data parallelism across them.
INSTANTIATE_TEST_SUITE_P(
    Machines, Layouts,
    ::testing::Values(Grid{.shard = 2, .tp = 2, .ranks_a_machine = 2},
                      Grid{.shard = 2,
                           .tp = 2,
                           .sequence = true,
                           .stage = Shard::kParameters,
                           .accumulation = 2,
                           .ranks_a_machine = 2},
                      Grid{.shard = 2, .tp = 4, .sequence = true, .stage = Shard::kGradients, .ranks_a_machine = 4}));

// Llama has 5 units: embedding, two layers, norm, head.
using Name = schedule::Name;
INSTANTIATE_TEST_SUITE_P(
    Pipelines, Layouts,
    ::testing::Values(
        Grid{.pp = 2, .accumulation = 4}, Grid{.pp = 4, .accumulation = 8}, Grid{.pp = 3, .accumulation = 2},
        Grid{.pp = 5, .schedule = Name::kGpipe, .accumulation = 4},
        Grid{.pp = 2, .schedule = Name::kNaive, .accumulation = 2},
        Grid{.pp = 2, .virtual_stages = 2, .schedule = Name::kInterleaved, .accumulation = 4},
        Grid{.pp = 2, .virtual_stages = 2, .schedule = Name::kLoopedBreadthFirst, .accumulation = 4},
        Grid{.pp = 2, .schedule = Name::kZeroBubbleH1, .accumulation = 4},
        Grid{.pp = 4, .schedule = Name::kZeroBubbleH1, .accumulation = 4, .gpt = true},
        Grid{.pp = 2, .virtual_stages = 2, .schedule = Name::kZeroBubbleV, .accumulation = 4},
        Grid{.pp = 2, .virtual_stages = 2, .schedule = Name::kZeroBubbleV, .accumulation = 2, .tied = true},
        Grid{.shard = 2,
             .tp = 2,
             .pp = 2,
             .virtual_stages = 2,
             .schedule = Name::kZeroBubbleV,
             .sequence = true,
             .stage = Shard::kGradients,
             .accumulation = 4,
             .tied = true},
        Grid{.shard = 2,
             .tp = 2,
             .pp = 2,
             .schedule = Name::kZeroBubbleH1,
             .sequence = true,
             .stage = Shard::kGradients,
             .accumulation = 4,
             .tied = true,
             .fused = true},
        Grid{.pp = 2, .accumulation = 4, .tied = true}, Grid{.pp = 2, .accumulation = 4, .gpt = true},
        Grid{.shard = 2, .pp = 2, .accumulation = 2}, Grid{.shard = 2, .pp = 2, .accumulation = 2, .tied = true},
        Grid{.shard = 2, .pp = 2, .stage = Shard::kOptimizer, .accumulation = 4, .tied = true},
        Grid{.shard = 2, .pp = 2, .stage = Shard::kGradients, .accumulation = 4},
        Grid{.shard = 2, .pp = 2, .stage = Shard::kGradients, .accumulation = 4, .tied = true},
        Grid{.shard = 2, .pp = 2, .stage = Shard::kParameters, .accumulation = 4, .tied = true},
        Grid{.shard = 2, .pp = 2, .stage = Shard::kParameters, .accumulation = 4, .backend = "tcp"},
        Grid{.shard = 2, .pp = 2, .stage = Shard::kGradients, .accumulation = 2, .tied = true, .backend = "tcp"},
        Grid{.replicate = 2, .shard = 2, .pp = 2, .stage = Shard::kGradients, .accumulation = 2, .backend = "tcp"},
        Grid{.shard = 2,
             .pp = 2,
             .virtual_stages = 2,
             .schedule = Name::kInterleaved,
             .stage = Shard::kParameters,
             .accumulation = 4,
             .backend = "tcp"},
        Grid{.tp = 2, .pp = 2, .accumulation = 4},
        Grid{.tp = 2, .pp = 2, .sequence = true, .accumulation = 4, .tied = true},
        Grid{.shard = 2,
             .tp = 2,
             .pp = 2,
             .virtual_stages = 2,
             .schedule = Name::kInterleaved,
             .sequence = true,
             .stage = Shard::kOptimizer,
             .accumulation = 2,
             .lamb = true},
        Grid{.shard = 2, .tp = 2, .pp = 2, .stage = Shard::kParameters, .accumulation = 4, .backend = "tcp"}));

// Six operations for each weight of a linear layer and each token, and twelve for each pair of tokens and feature.
template <class Model, class Options>
void expect_flops(const Options& options, std::int64_t positions) {
  double operations = 12.0 * static_cast<double>(options.layers * options.dim * positions * positions);
  for (const auto& item : Model(options).named_parameters()) {
    const bool is_table = item.key().find("embed") != std::string::npos;
    if (item.value().dim() == 2 && !is_table) operations += 6.0 * static_cast<double>(item.value().numel() * positions);
  }
  EXPECT_EQ(training_flops(options, positions), operations);
}

TEST(TrainingFlops, AreThoseOfTheLinearLayersAndOfAttention) {
  expect_flops<Llama>(llama_of({}), 16);
  expect_flops<Gpt>(gpt_of({}), 16);
}

}  // namespace
}  // namespace reigen::models
