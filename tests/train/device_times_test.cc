// The times of a step's phases are measured on the GPU: in metrics.jsonl, in the report, and in the trace.
#include <chrono>
#include <map>
#include <thread>

#include "device/cuda.h"
#include "fakes/cuda/stand_in.h"
#include "tensor/calls.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// A kernel after backward takes 20 ms, and after the fourth backward twice as long.
class Slow : public Callback {
  std::string name() const override { return "slow"; }
  void after_backward(Moment& /*moment*/) override {
    const std::chrono::milliseconds time(++calls_ > 4 ? 40 : 20);
    const Stream stream = tensor::current_stream(at::Device(at::kCUDA, 0));
    testing::stand_in::enqueue(static_cast<cudaStream_t>(device::handle_of(stream)),
                               [time] { std::this_thread::sleep_for(time); });
  }
  int calls_ = 0;
};

class DeviceTimesTest : public TrainerTest {
 protected:
  void fit_on_gpu(Config run, const Prepare& prepare) {
    run.train.device = "cuda:0";
    device_ = Device::cuda(0);
    fit(1, run, prepare);
  }
};

TEST_F(DeviceTimesTest, AreThoseOfTheGpu) {
  const Prepare slow = [](int, SmallTask&, TrainerOptions& options) { options.callbacks = {std::make_shared<Slow>()}; };
  for (const char* policy : {"stop", "skip"}) {  // with "skip" the host waits in each step
    Config run = config(policy);
    run.train.not_finite = policy;
    run.run.trace = "3:5";
    fit_on_gpu(run, slow);
    EXPECT_GT(summary(policy)["optimizer_ms"].get<double>(), 19);
    EXPECT_LT(summary(policy)["forward_ms"].get<double>(), 19);
    for (const auto& line : lines_of(root_ / policy)) {
      const double least = policy == std::string("stop") ? 19 : 0;
      EXPECT_GT(line["optimizer_ms"].get<double>(), least) << line;
    }
    std::map<std::string, int> rows;
    std::map<std::string, double> longest;
    const nlohmann::json trace = nlohmann::json::parse(read_file(root_ / policy / "trace.json"))["traceEvents"];
    for (const auto& event : trace) {
      if (event["name"] == "thread_name") rows[event["args"]["name"]] = event["tid"];
    }
    ASSERT_TRUE(rows.contains("GPU") && rows.contains("training"));
    double begin = 0;
    for (const auto& event : trace) {
      if (event["ph"] != "X") continue;
      if (event["name"] == "step 3") begin = event["ts"];
      if (event["tid"] != rows["GPU"]) continue;
      EXPECT_GT(event["ts"].get<double>(), begin);
      double& most = longest[event["name"]];
      most = std::max(most, event["dur"].get<double>());
    }
    for (const char* name : {"forward", "backward", "optimizer"}) EXPECT_TRUE(longest.contains(name)) << name;
    EXPECT_GT(longest["gradient norm"], 19'000);
  }
}

// The steps after the checkpoint are made twice. Their times are those of the second time, and the trace has them all.
TEST_F(DeviceTimesTest, AreThoseOfTheGpuAfterARollback) {
  Config run = config("run");
  run.train.not_finite = "rollback";
  run.checkpoint.every_steps = 2;
  run.run.trace = "3:8";
  fit_on_gpu(run, [](int, SmallTask& task, TrainerOptions& options) {
    options.callbacks = {std::make_shared<Slow>()};
    task.poison_gradient_call = 4;
  });
  const auto lines = lines_of(root_ / "run");
  ASSERT_EQ(lines.size(), 9U);
  for (const auto& line : lines) {
    const double least = line["step"] < 3 ? 19 : 39;
    EXPECT_GE(line["optimizer_ms"].get<double>(), line.contains("skipped") ? 0 : least) << line;
  }
  int rows = 0;
  const nlohmann::json trace = nlohmann::json::parse(read_file(root_ / "run" / "trace.json"))["traceEvents"];
  for (const auto& event : trace) {
    const bool is_slow = event["name"] == "gradient norm" && event["dur"].get<double>() > 19'000;
    rows += is_slow ? 1 : 0;
  }
  EXPECT_GE(rows, 5);
}

}  // namespace
}  // namespace reigen::train
