// Shared by the tests of the trainer: a run that takes milliseconds, on ranks that are threads.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/read_file.h"
#include "reigen/base/error.h"
#include "reigen/data/dataset.h"
#include "reigen/nn/init.h"
#include "reigen/nn/unit.h"
#include "reigen/nn/without_memory.h"
#include "reigen/runtime/init.h"
#include "reigen/train/trainer.h"

namespace reigen::train {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using tests::read_file;

inline std::vector<nlohmann::json> lines_of_kind(const fs::path& directory, bool of_steps) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(directory / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("loss") == of_steps) lines.push_back(std::move(json));
  }
  return lines;
}
// The lines for steps, and those for validations. metrics.jsonl has both.
inline std::vector<nlohmann::json> lines_of(const fs::path& directory) { return lines_of_kind(directory, true); }
inline std::vector<nlohmann::json> validations_of(const fs::path& directory) { return lines_of_kind(directory, false); }

// Whether the runs of TrainerTest train on GPUs, each rank on one of its own. on_gpu.cc sets it, for a program in which
// LibTorch's device "cuda" is played by the CPU.
inline bool on_gpu = false;

// A net so small that a whole run takes milliseconds. A formula makes the data.
struct SmallNet : torch::nn::Module {
  explicit SmallNet(int width = 16)
      : fc1(register_module("fc1", torch::nn::Linear(6, width))),
        fc2(register_module("fc2", torch::nn::Linear(width, 4))),
        units{nn::Unit("fc1", fc1.ptr()), nn::Unit("fc2", fc2.ptr())} {}
  at::Tensor forward(const at::Tensor& x) { return nn::call(units[1], at::tanh(nn::call(units[0], x))); }
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
  std::vector<nn::Unit> units;
};

inline data::DatasetPtr made_data(std::int64_t size, at::ScalarType type, const char* name) {
  const at::Tensor input = at::empty({size, 6}, type);
  nn::fill_uniform(input, name, 11, 1.0);
  return data::in_memory(input, input.narrow(1, 0, 4).argmax(1), name);
}

class SmallTask final : public Task, public DataModule {
 public:
  explicit SmallTask(const Config& config, int width = 16)
      : type_(config.train.precision == "fp64" ? at::kDouble : at::kFloat), net_(width) {
    net_.to(type_);
  }
  torch::nn::Module& module() override { return net_; }
  std::vector<nn::Unit> units() override { return has_units ? net_.units : std::vector<nn::Unit>(); }
  data::DatasetPtr training() override { return data ? data : made_data(195, type_, "train"); }
  data::DatasetPtr validation() override { return held_out ? held_out : made_data(511, type_, "test"); }
  at::Tensor training_step(const data::Samples& batch) override {
    const at::Tensor& target = batch.target;
    const at::Tensor scores = net_.forward(batch.input);
    if (log_step) log_step(*this, scores, target);
    const at::Tensor loss =
        at::cross_entropy_loss(dropout > 0 ? at::dropout(scores, dropout, net_.is_training()) : scores, target);
    ++calls_;
    if (before_call) before_call(calls_);
    const bool is_due = calls_ == poison_gradient_call || (poison_lasts && calls_ > poison_gradient_call);
    if (is_due) loss.register_hook([by = poison_gradient_by](const at::Tensor& g) { return g * by; });
    return calls_ == poison_call ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
  }
  std::int64_t validation_batch() const override { return samples_a_call; }
  void validation_step(const data::Samples& batch) override {
    validated += batch.target.size(0);
    const at::Tensor scores = net_.forward(batch.input).to(at::kDouble);
    log("test_accuracy", accuracy(scores, batch.target));
    log("test_loss", at::cross_entropy_loss(scores, batch.target));
    if (figure) log("figure", *figure);
  }
  template <class Value>
  void note(std::string_view name, const Value& value) {
    log(name, value);
  }
  bool has_units = false;  // whether the task tells its units
  double dropout = 0;
  std::int64_t samples_a_call = 250;
  std::int64_t validated = 0;
  std::optional<double> figure = {};  // logged by validations
  std::function<void(SmallTask&, const at::Tensor& scores, const at::Tensor& target)> log_step = {};
  data::DatasetPtr data = {};      // for training; if null, a formula makes the data
  data::DatasetPtr held_out = {};  // for validation; if null, a formula makes the data
  std::function<void(std::int64_t call)> before_call = {};
  std::int64_t poison_call = -1;
  std::int64_t poison_gradient_call = -1;  // the loss is normal, but its gradient is infinite
  bool poison_lasts = false;               // ... also in all later calls
  double poison_gradient_by = std::numeric_limits<double>::infinity();

 private:
  at::ScalarType type_;
  SmallNet net_;
  std::int64_t calls_ = 0;
};

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("reigen_trainer_test_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // 195 samples in batches of 97: steps of 97, 97 and 1 sample.
  Config config(const std::string& directory) const {
    Config config;
    config.run.dir = (root_ / directory).string();
    config.train.epochs = 3;
    config.train.global_batch = 97;
    config.train.precision = "fp64";
    config.train.threads = 1;
    config.train.device = usual_device_.is_cpu() ? "cpu" : "cuda";
    config.optim.lr = 0.01;
    return config;
  }

  using Prepare = std::function<void(int rank, SmallTask& task, TrainerOptions& options)>;

  FitResult fit(int ranks, const Config& config, const Prepare& prepare = {}) {
    FitResult result;
    output_.clear();
    codes_.assign(static_cast<std::size_t>(ranks), ExitCode::kOk);
    const auto run = [&](Communicator& world) {
      // A stream of the rank's own, as threads share the default stream. Where they share a GPU, the trainer makes it.
      c10::OptionalStreamGuard guard;
      if (!device_.is_cpu() && device_.index < 0) {
        const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(world.device().index));
        guard.reset_stream(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(gpu));
      }
      std::optional<nn::WithoutMemory> without;  // like the models of reigen train
      if (config.train.verify == 0) without.emplace();
      SmallTask task(config, width_);
      without.reset();
      TrainerOptions options{
          .name = "small", .config = config, .write = [&](const std::string& text) { output_ += text; }};
      if (prepare) prepare(world.rank(), task, options);
      try {
        const FitResult mine = Trainer(task, world, options).fit();
        if (world.rank() == 0) result = mine;
      } catch (const Error& error) {
        codes_[static_cast<std::size_t>(world.rank())] = error.exit_code();
        throw;
      }
    };
    run_threads(ranks, run, {.backend = backend_, .device = device_});
    return result;
  }

  ExitCode failure(int ranks, const Config& config, const Prepare& prepare = {}) {
    try {
      fit(ranks, config, prepare);
    } catch (const Error& error) {
      failure_text_ = error.what();
      return error.exit_code();
    }
    return ExitCode::kOk;
  }

  std::vector<double> losses(const std::string& directory) const {
    std::vector<double> values;
    for (const auto& json : lines_of(root_ / directory)) {
      values.push_back(json["loss"]);
      EXPECT_EQ(json["step"], static_cast<std::int64_t>(values.size()));
    }
    return values;
  }

  std::vector<std::int64_t> read_steps(const std::string& directory) const {
    std::vector<std::int64_t> steps;
    for (const auto& json : lines_of(root_ / directory)) steps.push_back(json["step"]);
    return steps;
  }

  std::string model(const std::string& directory) const { return read_file(root_ / directory / "model.safetensors"); }
  nlohmann::json summary(const std::string& directory) const {
    return nlohmann::json::parse(read_file(root_ / directory / "summary.json"));
  }

  fs::path root_;
  std::string backend_ = "auto";
  Device usual_device_ = on_gpu ? Device::cuda() : Device::cpu();  // where config() trains
  Device device_ = usual_device_;
  int width_ = 16;  // of the net
  std::string output_;
  std::string failure_text_;
  std::vector<ExitCode> codes_;  // the exit code of each rank of the last run
};

}  // namespace reigen::train
