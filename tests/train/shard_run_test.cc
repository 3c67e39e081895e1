// Runs with shards: the training equals that without shards, and every layout can read the states of any other.
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <optional>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/optim/adamw.h"
#include "reigen/optim/ema.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/tensor/pieces.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

constexpr int kWide = 5000;  // fc1.weight has two blocks, so it is sharded

struct Layout {
  const char* backend = "auto";
  int ranks = 1;
  const char* shard = "none";
  int replicas = 1;
};

std::string name_of(const Layout& layout) {
  return std::string(layout.backend) + "_" + std::to_string(layout.ranks) + "_" + layout.shard + "_" +
         std::to_string(layout.replicas);
}

const std::vector<Layout> kLayouts{
    {},
    {"auto", 2, "none"},
    {"auto", 3, "gradients"},
    {"auto", 2, "parameters"},
    {"auto", 4, "parameters", 2},
    {"tcp", 2, "optimizer"},
    {"tcp", 3, "gradients"},
    {"tcp", 2, "parameters"},
    {"tcp", 4, "parameters"},
    {"tcp", 4, "gradients", 2},
};

class ShardRun : public TrainerTest {
 protected:
  Config with(const Layout& layout, const std::string& directory) {
    Config result = config(directory);
    result.parallel.shard = layout.shard;
    result.parallel.replicas = layout.replicas;
    result.optim.ema_decay = 0.9;
    result.checkpoint.every_steps = 2;
    backend_ = layout.backend;
    width_ = kWide;
    return result;
  }
};

// Each byte is counted for one rank. Spare elements and counts of steps are the rest.
TEST_F(ShardRun, TheSummaryTellsWhatRanksHoldBesideTheFormulas) {
  constexpr std::int64_t kElements = 6 * kWide + kWide + kWide * 4 + 4;
  constexpr std::int64_t kRest = 4096;
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(name_of(layout));
    fit(layout.ranks, with(layout, name_of(layout)));
    const auto memory = nlohmann::json::parse(read_file(root_ / name_of(layout) / "summary.json"))["memory_bytes"];
    const auto sum_of = [&](const char* part) {
      std::int64_t sum = 0;
      for (const std::int64_t bytes : memory[part]["by_rank"]) sum += bytes;
      return sum;
    };
    for (const char* part : {"parameters", "gradients", "optimizer"}) {
      SCOPED_TRACE(part);
      const std::int64_t formula = memory[part]["formula"].get<std::int64_t>() * layout.ranks;
      EXPECT_GE(sum_of(part), formula);
      EXPECT_EQ(memory[part]["by_rank"], memory[part]["formula_by_rank"]);
    }
    const bool whole = layout.shard == std::string("none");
    const int copies = whole ? layout.ranks : layout.replicas;
    EXPECT_NEAR(static_cast<double>(sum_of("optimizer")), 3.0 * 8 * kElements * copies, kRest * layout.ranks);
    const std::int64_t activations = memory["activations"]["by_rank"][0];
    EXPECT_GE(activations, 97 / layout.ranks * kWide * 8);
    EXPECT_GT(memory["step"]["by_rank"][0], activations);
    EXPECT_THAT(output_, HasSubstr("  a rank holds   parameters "));
    std::vector<std::pair<std::string, std::int64_t>> mesh = {{whole ? "dp_replicate" : "dp_shard", layout.ranks}};
    if (layout.replicas > 1) mesh = {{"dp_replicate", layout.replicas}, {"dp_shard", layout.ranks / layout.replicas}};
    EXPECT_EQ(checkpoint::find_newest(root_ / name_of(layout) / "checkpoints").newest->manifest().mesh, mesh);
  }
}

TEST_F(ShardRun, OnADiskEveryDivisionTrainsTheSameModel) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(name_of(layout));
    Config run = with(layout, "memory_" + name_of(layout));
    fit(layout.ranks, run);
    run.run.dir = (root_ / ("disk_" + name_of(layout))).string();
    run.parallel.offload = root_.string();
    run.train.max_steps = 4;
    fit(layout.ranks, run);
    run.train.max_steps = 0;
    run.run.resume = "true";
    fit(layout.ranks, run);
    EXPECT_EQ(read_file(root_ / ("disk_" + name_of(layout)) / "model.safetensors"),
              read_file(root_ / ("memory_" + name_of(layout)) / "model.safetensors"));
  }
  // The first file is written from rank 0's weights, the second from the checkpoint.
  EXPECT_EQ(read_file(root_ / "memory_auto_2_none_1" / "model.safetensors"),
            read_file(root_ / "memory_tcp_2_parameters_1" / "model.safetensors"));
  for (const auto& entry : fs::directory_iterator(root_)) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("offload")));
  }
}

TEST_F(ShardRun, EveryDivisionTrainsTheSameModelAndGoesOnFromAnyOther) {
  Config whole = with(kLayouts.front(), "whole");
  EXPECT_EQ(fit(1, whole).steps, 9);
  const auto near_whole = [&](const std::string& directory) {
    const std::vector<double> expected = losses("whole");
    const std::vector<double> got = losses(directory);
    ASSERT_EQ(got.size(), expected.size()) << directory;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9) << directory << ", step " << i;
    EXPECT_NEAR(summary(directory)["test_loss"], summary("whole")["test_loss"], 1e-9) << directory;
  };
  std::string before;
  for (std::size_t i = 1; i < kLayouts.size(); ++i) {
    const Layout& layout = kLayouts[i];
    const std::string name = name_of(layout);
    EXPECT_EQ(fit(layout.ranks, with(layout, name)).steps, 9);
    near_whole(name);
    // Four steps in the previous layout, and the others in this layout.
    const std::string parts = "parts_" + name;
    Config first = with(kLayouts[i - 1], parts);
    first.train.max_steps = 4;
    fit(kLayouts[i - 1].ranks, first);
    Config second = with(layout, parts);
    second.run.resume = "true";
    EXPECT_EQ(fit(layout.ranks, second).steps, 9);
    EXPECT_THAT(output_, HasSubstr("going on after step 4"));
    near_whole(parts);
    // All steps in this layout, also with a stop after four.
    const std::string own = "own_" + name;
    Config begin = with(layout, own);
    begin.train.max_steps = 4;
    fit(layout.ranks, begin);
    begin.train.max_steps = 0;
    begin.run.resume = "true";
    EXPECT_EQ(fit(layout.ranks, begin).steps, 9);
    EXPECT_EQ(losses(own), losses(name));
    EXPECT_EQ(model(own), model(name));
    EXPECT_EQ(read_file(root_ / own / "model_ema.safetensors"), read_file(root_ / name / "model_ema.safetensors"));
  }
}

// One bit flips in the memory of one rank.
TEST_F(ShardRun, AReplicaThatDriftsEndsTheRunAndIsNamed) {
  Config run = with({"auto", 3, "none"}, "run");
  run.train.compare_every = 3;
  const auto flip = [&](int rank, SmallTask& task, TrainerOptions&) {
    if (rank != 1) return;
    task.before_call = [&task](std::int64_t call) {
      if (call != 5) return;
      static_cast<std::uint64_t*>(task.module().parameters()[0].data_ptr())[7] ^= std::uint64_t{1} << 40;
    };
  };
  EXPECT_EQ(failure(3, run, flip), ExitCode::kReplicasDiverged);
  EXPECT_THAT(failure_text_,
              HasSubstr("replicas differ after step 6: fc1.weight is another on rank 1 than on ranks 0, 2"));
  EXPECT_THAT(failure_text_, HasSubstr("go on from the checkpoint of step 4"));
}

// The replicas of the other share are equal, but their ranks end too.
TEST_F(ShardRun, AShareThatDriftsFromItsReplicaEndsAllRanks) {
  Config run = with({"auto", 4, "parameters", 2}, "run");
  run.optim.ema_decay = 0;  // an average is compared as a whole tensor
  run.train.compare_every = 3;
  const auto flip = [&](int rank, SmallTask& task, TrainerOptions&) {
    if (rank != 3) return;
    task.before_call = [&task](std::int64_t call) {
      if (call != 5) return;
      // Not in the first values: rank 2 shares this memory, and checks the first values before it goes on.
      static_cast<std::uint64_t*>(task.module().parameters()[2].data_ptr())[40] ^= std::uint64_t{1} << 40;
    };
  };
  EXPECT_EQ(failure(4, run, flip), ExitCode::kReplicasDiverged);
  EXPECT_THAT(failure_text_, HasSubstr("replicas differ after step 6: fc2.weight is another on rank 3 than on rank 1"));
  EXPECT_THAT(codes_, ::testing::Each(ExitCode::kReplicasDiverged));
}

// Ranks also wait for each other in the groups of a mesh. If a rank fails, the ranks of its groups end too, even in the
// middle of backward.
TEST_F(ShardRun, AnExceptionOnOneRankEndsTheRanksOfAllItsGroups) {
  for (const char* shard : {"optimizer", "gradients", "parameters"}) {
    for (int rank = 0; rank < 4; ++rank) {
      const Config run = with({"auto", 4, shard, 2}, std::string(shard) + std::to_string(rank));
      const auto fail = [rank](int own, SmallTask& task, TrainerOptions&) {
        if (own != rank) return;
        task.before_call = [](std::int64_t call) {
          if (call == 5) throw InvalidArgument("the fifth forward failed");
        };
      };
      EXPECT_EQ(failure(4, run, fail), ExitCode::kConfiguration);
      EXPECT_THAT(failure_text_, HasSubstr("the fifth forward failed"));
      EXPECT_THAT(codes_, ::testing::Each(::testing::Ne(ExitCode::kOk)));
    }
  }
}

TEST_F(ShardRun, ReplicasWithoutADivisionAreRefused) {
  Config run = with({}, "run");
  run.parallel.replicas = 2;
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("the mesh does not say who divides"));
}

// ---- States from any layout to any other, byte by byte

class Saved : public TrainerTest {
 protected:
  using Values = std::map<std::string, std::string>;

  struct Model {
    explicit Model(const Layout& layout, Communicator& world) : net(kWide) {
      parallel::DataParallelOptions options;
      const std::string shard = layout.shard;
      if (shard == "optimizer") options.shard = parallel::Shard::kOptimizer;
      if (shard == "gradients") options.shard = parallel::Shard::kGradients;
      if (shard == "parameters") options.shard = parallel::Shard::kParameters;
      options.units = net.units;
      if (layout.replicas > 1) {
        options.mesh.emplace(world, std::vector<mesh::Axis>{{"dp_replicate", layout.replicas}, {"dp_shard", -1}});
      }
      make = [this, world, options] {
        parallel.emplace(net, world, options);
        optimizer.emplace(parallel->parameters(), optim::AdamWOptions{.lr = 0.01});
      };
    }
    SmallNet net;
    std::function<void()> make;
    std::optional<parallel::DataParallelBase> parallel;
    std::optional<optim::AdamW> optimizer;
  };

  static std::vector<tensor::NamedTensor> given(const Model& model, std::vector<tensor::NamedTensor> tensors,
                                                const Communicator& world) {
    std::erase_if(tensors, [&](const tensor::NamedTensor& item) {
      return item.is_divided() ? model.parallel->replicas().rank() != 0 : world.rank() != 0;
    });
    return tensors;
  }

  // Returns the checkpoint's path.
  fs::path save(const Layout& layout, const fs::path& directory, const fs::path& from) {
    fs::path result;
    run_threads(
        layout.ranks,
        [&](Communicator& world) {
          Model model(layout, world);
          std::optional<checkpoint::Checkpoint> found;
          if (!from.empty()) {
            found.emplace(from);
            tensor::read_into(*found, "model", tensor::tensors_of(model.net));
          }
          model.make();
          if (found) {
            model.optimizer->load_state(tensor::read_group(*found, "optimizer"), 2);
          } else {
            train(model, world);
          }
          const tensor::Pieces weights(given(model, tensor::tensors_of(model.net, model.parallel->weights()), world));
          const tensor::Pieces states(given(model, model.optimizer->state(), world));
          const fs::path path = checkpoint::save(
              directory, {.step = 2}, {{"model", weights.pieces()}, {"optimizer", states.pieces()}}, 1, world);
          if (world.rank() == 0) result = path;
        },
        {.backend = layout.backend});
    return result;
  }

  static void train(Model& model, Communicator& world) {
    for (int step = 0; step < 2; ++step) {
      const at::Tensor input = at::empty({4, 6});
      nn::fill_uniform(input, "input" + std::to_string(step), static_cast<std::uint64_t>(world.rank()), 1.0);
      model.parallel->prepare_forward();
      model.net.forward(input).square().mean().backward();
      model.optimizer->step();
      model.optimizer->zero_grad();
    }
  }

  static Values values_of(const fs::path& path) {
    const checkpoint::Checkpoint found(path);
    found.verify();
    Values result;
    for (const char* group : {"model", "optimizer"}) {
      for (const auto& item : tensor::read_group(found, group)) {
        result[std::string(group) + " " + item.name] =
            std::string(static_cast<const char*>(item.tensor.const_data_ptr()), item.tensor.nbytes());
      }
    }
    return result;
  }
};

TEST_F(Saved, AStateOfAnyDivisionIsReadByAnyOther) {
  for (const Layout& a : kLayouts) {
    const fs::path first = save(a, root_ / name_of(a), {});
    const Values expected = values_of(first);
    ASSERT_EQ(expected.size(), 4U + 12U);
    for (const Layout& b : kLayouts) {
      const fs::path second = save(b, root_ / "second", first);
      EXPECT_EQ(values_of(second), expected) << name_of(a) << " to " << name_of(b);
    }
  }
}

}  // namespace
}  // namespace reigen::train
