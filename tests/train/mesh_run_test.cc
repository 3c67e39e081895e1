// Runs whose ranks divide the model (mesh.tp, mesh.pp): they train as one rank does, and checkpoints fit every
// mesh.
#include <functional>
#include <map>
#include <memory>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/decoder_task.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

struct Mesh {
  int ranks = 1;
  int tp = 1;
  bool sequence = false;
  const char* shard = "auto";
  int replicas = 1;
  int cp = 1;
  int pp = 1;
  int virtual_stages = 1;
  const char* schedule = "1f1b";
};

class MeshRun : public TrainerTest {
 protected:
  Config with(const Mesh& mesh, const std::string& directory) const {
    Config run = config(directory);
    run.train.global_batch = 12;
    run.train.max_steps = 6;
    run.train.clip_norm = 0.5;
    run.data.limit = 120;
    run.optim.ema_decay = 0.9;
    run.mesh.tp = mesh.tp;
    run.mesh.sequence = mesh.sequence;
    run.mesh.cp = mesh.cp;
    run.mesh.pp = mesh.pp;
    run.mesh.schedule = mesh.schedule;
    run.mesh.virtual_stages = mesh.virtual_stages;
    if (mesh.pp > 1) run.train.micro_batch = 2;
    run.parallel.shard = mesh.shard;
    run.parallel.replicas = mesh.replicas;
    run.checkpoint.every_steps = 3;
    return run;
  }

  void fit(int ranks, const Config& run, std::vector<std::string>* said = nullptr) const {
    run_threads(
        ranks,
        [&](Communicator& world) {
          LlamaTaskOptions options{
              .path = (root_ / "text.txt").string(),
              .type = type_,
              .without_memory = without_memory_,
              .model = {.vocab = 0, .layers = 1, .dim = 24, .heads = 6, .kv_heads = 3, .hidden = 20, .context = 16}};
          LlamaTask task(options);
          if (change_first_) change_first_(world.rank(), task);
          options.without_memory = false;
          if (options_of_one_) options_of_one_(options);
          const auto make_task = [&]() -> std::shared_ptr<Task> {
            if (make_one_) return make_one_(options);
            auto second = std::make_shared<LlamaTask>(options);
            if (change_one_) change_one_(*second);
            return second;
          };
          Trainer(task, world,
                  {.config = run,
                   .write =
                       [&](const std::string& text) {
                         if (said != nullptr) said->push_back(text);
                       },
                   .make_task = make_task})
              .fit();
        },
        {.backend = backend_});
  }

  // The error of a run that is verified.
  std::string refusal(const Mesh& mesh) const {
    fs::remove_all(root_ / "differs");
    Config run = with(mesh, "differs");
    run.train.verify = 2;
    run.train.precision = type_ == at::kDouble ? "fp64" : "fp32";
    try {
      fit(mesh.ranks, run);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration) << error.what();
      return error.what();
    }
    return "accepted";
  }

  at::ScalarType type_ = at::kDouble;
  bool without_memory_ = true;                                   // as recipes make their models
  std::function<void(int rank, LlamaTask&)> change_first_ = {};  // how a rank's model differs
  // How the model of one process differs, with which train.verify compares.
  std::function<void(LlamaTaskOptions&)> options_of_one_ = {};
  std::function<std::shared_ptr<Task>(const LlamaTaskOptions&)> make_one_ = {};
  std::function<void(LlamaTask&)> change_one_ = {};

  // A text of 4000 characters: a run validates on a tenth of it.
  void SetUp() override {
    TrainerTest::SetUp();
    static const char* const kWords[] = {"mesh ", "ranks ", "divide ", "layers, ", "heads ", "and ", "tokens. "};
    std::string all;
    for (std::uint64_t i = 0; all.size() < 4000; ++i) all += kWords[i * i * 31 % 101 % 7];
    std::ofstream(root_ / "text.txt") << all;
  }

  void expect_the_same(const std::string& found, const std::string& expected) const {
    const auto as = lines_of(root_ / found), bs = lines_of(root_ / expected);
    ASSERT_EQ(as.size(), bs.size());
    for (std::size_t i = 0; i < as.size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double b = bs[i][key].get<double>();
        EXPECT_NEAR(as[i][key].get<double>(), b, 1e-9 * b) << key << " of step " << i;
      }
    }
    const auto scores = [&](const std::string& name) { return validations_of(root_ / name).back(); };
    EXPECT_NEAR(scores(found)["test_loss"].get<double>(), scores(expected)["test_loss"].get<double>(), 1e-9);
    EXPECT_EQ(scores(found)["test_samples"], scores(expected)["test_samples"]);
    for (const char* file : {"model.safetensors", "model_ema.safetensors"}) {
      const auto ours = tensor::read_tensors(root_ / found / file);
      std::map<std::string, at::Tensor> whole;
      for (const tensor::NamedTensor& item : tensor::read_tensors(root_ / expected / file))
        whole[item.name] = item.tensor;
      ASSERT_EQ(ours.size(), whole.size());
      for (const tensor::NamedTensor& item : ours) {
        EXPECT_LT((item.tensor - whole.at(item.name)).abs().max().item<double>(), 1e-9) << file << " " << item.name;
      }
    }
  }
};

const std::vector<Mesh> kMeshes{
    {2, 2},
    {3, 3, true},
    {4, 2, true, "none"},
    {4, 2, false, "gradients"},
    {4, 2, true, "parameters"},
    {8, 2, true, "optimizer", 2},
    {.ranks = 2, .pp = 2},
    {.ranks = 4, .shard = "gradients", .pp = 2},
    {.ranks = 4, .tp = 2, .sequence = true, .pp = 2, .schedule = "gpipe"},
    {.ranks = 4, .shard = "gradients", .cp = 2},
    {.ranks = 8, .tp = 2, .sequence = true, .cp = 2, .pp = 2},
    {.ranks = 8, .tp = 2, .shard = "parameters", .pp = 2, .virtual_stages = 2, .schedule = "interleaved_1f1b"}};

TEST_F(MeshRun, TrainsAsOneRankDoes) {
  fit(1, with({}, "one"));
  const auto one = nlohmann::json::parse(read_file(root_ / "one" / "summary.json"));
  EXPECT_GT(one["flops_of_sample"], 0);
  for (std::size_t i = 0; i < kMeshes.size(); ++i) {
    const std::string name = "mesh" + std::to_string(i);
    SCOPED_TRACE(name);
    without_memory_ = i % 2 == 0;
    fit(kMeshes[i].ranks, with(kMeshes[i], name));
    expect_the_same(name, "one");
    const auto summary = nlohmann::json::parse(read_file(root_ / name / "summary.json"));
    for (const char* part : {"parameters", "gradients", "optimizer"}) {
      EXPECT_EQ(summary["memory_bytes"][part]["by_rank"], summary["memory_bytes"][part]["formula_by_rank"]) << part;
    }
    EXPECT_EQ(summary["flops_of_sample"], one["flops_of_sample"]);
    EXPECT_GT(summary["gemm_peak_flops_per_s"], 0);
    EXPECT_NEAR(summary["model_flops_utilisation"].get<double>(),
                summary["flops_of_sample"].get<double>() * summary["samples_per_s"].get<double>() /
                    summary["gemm_peak_flops_per_s"].get<double>(),
                1e-12);
  }
}

TEST_F(MeshRun, ACheckpointOfOneMeshFitsAnother) {
  fit(1, with({}, "one"));
  for (const Mesh& from : {Mesh{}, kMeshes[1], kMeshes[4], kMeshes[11]}) {
    Config half = with(from, "half");
    half.train.max_steps = 3;
    fit(from.ranks, half);
    for (const Mesh& to : {Mesh{}, kMeshes[2], kMeshes[7], kMeshes[10]}) {
      fs::copy(root_ / "half", root_ / "whole", fs::copy_options::recursive);
      Config rest = with(to, "whole");
      rest.run.dir.clear();
      rest.run.resume = (root_ / "whole").string();
      fit(to.ranks, rest);
      expect_the_same("whole", "one");
      fs::remove_all(root_ / "whole");
    }
    fs::remove_all(root_ / "half");
  }
}

TEST_F(MeshRun, ALayoutIsVerifiedBesideOneProcess) {
  for (const std::size_t i : {std::size_t{2}, std::size_t{4}, std::size_t{7}, std::size_t{10}, kMeshes.size() - 1}) {
    Config run = with(kMeshes[i], "verified" + std::to_string(i));
    run.train.verify = 2;
    std::vector<std::string> said;
    fit(kMeshes[i].ranks, run, &said);
    EXPECT_THAT(said, Contains(HasSubstr("verified: 2 steps of this layout are those of one process"))) << i;
    EXPECT_THAT(said, Not(Contains(HasSubstr("could not be compared")))) << i;
  }
}

// The first difference is named: the layer whose angles are others, and the unit whose gradient is another.
TEST_F(MeshRun, WhatDiffersFromOneProcessIsNamed) {
  const auto changed = [&](const Mesh& mesh, std::function<void(LlamaTask&)> change) {
    change_one_ = std::move(change);
    return refusal(mesh);
  };
  const Mesh tensors{2, 2, true};
  options_of_one_ = [](LlamaTaskOptions& options) { options.model.theta = 50; };
  EXPECT_THAT(refusal(tensors), HasSubstr("step 1: forward of unit model.layers.0, micro-batch 0 differs on "));
  EXPECT_THAT(refusal({.ranks = 2, .pp = 2}), HasSubstr("forward of unit model.layers.0, micro-batch 0"));
  options_of_one_ = {};
  const auto doubles_gradient = [](LlamaTask& task) {
    task.units()[1].attach(nn::Layer::kPrecision, [](const nn::Carry& input, const nn::Unit::Forward& inner) {
      nn::Carry output = inner(input);
      if (output[0].requires_grad()) output[0].register_hook([](const at::Tensor& gradient) { return gradient * 2; });
      return output;
    });
  };
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    type_ = type;
    EXPECT_THAT(
        changed(tensors, doubles_gradient),
        HasSubstr("step 1: the gradient that model.layers.0 gives back to unit model.embed_tokens, micro-batch 0, "
                  "differs"));
    const auto halves_of_weight = [](LlamaTask& task) {
      task.module().named_parameters()["model.norm.weight"].register_hook(
          [](const at::Tensor& gradient) { return gradient / 2; });
    };
    EXPECT_THAT(changed({.ranks = 2, .pp = 2}, halves_of_weight),
                HasSubstr("step 1: the averaged gradient of model.norm.weight differs on rank 1 (pp 1)"));
    // Gradients that ranks average from each other's memory, or send.
    for (const char* shard : {"gradients", "parameters"}) {
      EXPECT_THAT(changed({4, 2, true, shard}, halves_of_weight),
                  HasSubstr("step 1: the averaged gradient of model.norm.weight differs on rank "))
          << shard;
    }
  }
}

// A text whose last window is short: its sample has fewer terms, and the last batch has fewer samples.
TEST_F(MeshRun, AWholeEpochWithAShortWindowIsVerified) {
  const std::string all = read_file(root_ / "text.txt");
  std::ofstream(root_ / "text.txt") << all.substr(0, 1000);
  for (const Mesh& mesh : {Mesh{4, 2, true, "none"}, Mesh{.ranks = 4, .shard = "parameters", .pp = 2},
                           Mesh{.ranks = 4, .tp = 2, .cp = 2}}) {
    Config run = with(mesh, "verified");
    run.data.limit = 0;
    run.train.max_steps = 5;
    run.train.verify = 5;
    std::vector<std::string> said;
    fit(mesh.ranks, run, &said);
    EXPECT_THAT(said, Contains(HasSubstr("5 steps an epoch")));
    EXPECT_THAT(said, Contains(HasSubstr("verified: 5 steps of this layout are those of one process")));
    fs::remove_all(root_ / "verified");
  }
}

// A unit that gives a value that is not finite is named, and not the loss or the gradient that follow from it. What is
// not finite in one process too is no difference.
TEST_F(MeshRun, ValuesThatAreNotFiniteAreNamedWhereTheyBegin) {
  const auto poisons = [](LlamaTask& task, std::size_t unit) {
    task.units()[unit].attach(nn::Layer::kPrecision, [](const nn::Carry& input, const nn::Unit::Forward& inner) {
      nn::Carry output = inner(input);
      output[0] = output[0] * std::numeric_limits<double>::quiet_NaN();
      return output;
    });
  };
  change_first_ = [&](int, LlamaTask& task) { poisons(task, 1); };
  EXPECT_THAT(refusal({2, 2, true}), HasSubstr("step 1: forward of unit model.layers.0, micro-batch 0 differs on "));
  change_one_ = [&](LlamaTask& task) { poisons(task, 1); };
  Config run = with({2, 2, true}, "skips");
  run.train.verify = 2;
  run.train.max_steps = 2;
  run.train.not_finite = "skip";
  std::vector<std::string> said;
  fit(2, run, &said);
  EXPECT_THAT(said, Contains(HasSubstr("verified: 2 steps of this layout are those of one process")));
}

// A second task that is not as the first.
TEST_F(MeshRun, ASecondTaskThatIsAnotherIsRefused) {
  options_of_one_ = [](LlamaTaskOptions& options) { options.model.layers = 2; };
  EXPECT_THAT(refusal({2, 2}), AllOf(HasSubstr("TrainerOptions::make_task makes another model"),
                                     HasSubstr("model.layers.0, model.layers.1")));
  options_of_one_ = [](LlamaTaskOptions& options) { options.model.hidden = 40; };
  EXPECT_THAT(refusal({2, 2}), AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight of shape [40, 24]"),
                                     HasSubstr("of shape [20, 24]")));
  make_one_ = [](const LlamaTaskOptions&) { return nullptr; };
  EXPECT_THAT(refusal({2, 2}), HasSubstr("TrainerOptions::make_task gave no task"));
}

// A rank's copy of a weight changes when its last gradient has been computed: only the weights differ.
TEST_F(MeshRun, AWrongCopyOfAWeightIsNamed) {
  change_first_ = [](int rank, LlamaTask& task) {
    if (rank != 1) return;
    const at::Tensor weight = task.module().named_parameters()["model.norm.weight"];
    task.units()[0].attach(nn::Layer::kPrecision, [weight](const nn::Carry& input, const nn::Unit::Forward& inner) {
      nn::Carry output = inner(input);
      if (output[0].requires_grad()) {
        output[0].register_hook([weight](const at::Tensor&) { at::Tensor(weight.data()).mul_(1.01); });
      }
      return output;
    });
  };
  without_memory_ = false;
  EXPECT_THAT(refusal({2, 2, true, "none"}),
              HasSubstr("step 1: the weight model.norm.weight after the optimizer's step differs on rank 1 (tp 1)"));
}

TEST_F(MeshRun, VerifyingNeedsPrecisionAndPlainAverages) {
  type_ = at::kFloat;
  for (const char* precision : {"bf16", "fp16"}) {
    Config run = with({2, 2}, std::string("refused_") + precision);
    run.train.verify = 1;
    run.train.precision = precision;
    EXPECT_THAT([&] { fit(2, run); }, ThrowsMessage<Error>(HasSubstr("only in fp32 or fp64"))) << precision;
  }
  Config run = with({4, 2, false, "parameters"}, "refused");
  run.train.verify = 1;
  run.train.precision = "fp32";
  run.parallel.gather_type = "bf16";
  backend_ = "tcp";
  EXPECT_THAT([&] { fit(4, run); }, ThrowsMessage<Error>(HasSubstr("parallel.gather_type bf16")));
}

TEST_F(MeshRun, RanksThatTheMeshDoesNotDivideAreRefused) {
  try {
    fit(3, with({3, 2}, "run"));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("mesh.tp does not divide the ranks"), HasSubstr("mesh.tp 1, 3"),
                                    HasSubstr("start 4 ranks")));
  }
}

TEST_F(MeshRun, MoreRanksThanHeadsOfKeysAreRefused) {
  try {
    fit(4, with({4, 4}, "run"));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.layers.0.self_attn.q_proj.weight"),
                                    HasSubstr("3 blocks of 8 for 4"), HasSubstr("at most 3 ranks")));
  }
}

TEST_F(MeshRun, ATaskWithoutAPlanIsRefused) {
  Config run = config("run");
  run.mesh.tp = 2;
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("the task small does not say how to divide its model"));
}

}  // namespace
}  // namespace reigen::train
