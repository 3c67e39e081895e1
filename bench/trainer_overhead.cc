// The same training by the trainer, with all that it writes and watches, and by a loop by hand. Prints processor time
// and wall time of a step, in seconds, after a warm-up.
//
//   trainer_overhead trainer|hand mnist|mlp|small STEPS DIRECTORY
#include <ATen/ATen.h>
#include <sys/resource.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "reigen/nn/init.h"
#include "reigen/optim/adamw.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/runtime/init.h"
#include "reigen/tensor/compute_threads.h"
#include "reigen/train/mlp_task.h"
#include "reigen/train/mnist_task.h"
#include "reigen/train/program.h"
#include "reigen/train/trainer.h"

namespace reigen {
namespace {

constexpr std::int64_t kWarmUp = 20;

// A net whose bare step takes some 100 us.
struct SmallNet : torch::nn::Module {
  torch::nn::Linear out = register_module("out", torch::nn::Linear(16, 4));
};

class Small : public train::Task, public train::DataModule {
 public:
  torch::nn::Module& module() override { return net_; }
  data::DatasetPtr training() override { return made(20'000'000 / 64); }
  data::DatasetPtr validation() override { return made(640); }
  at::Tensor training_step(const data::Samples& batch) override {
    return at::cross_entropy_loss(net_.out(batch.input), batch.target);
  }

 private:
  static data::DatasetPtr made(std::int64_t count) {
    const at::Tensor input = at::empty({count, 16});
    nn::fill_uniform(input, "input", 1, 1.0);
    return data::in_memory(input, input.narrow(1, 0, 4).argmax(1));
  }
  SmallNet net_;
};

// Logs five names in each step.
class Logging : public train::Task, public train::DataModule {
 public:
  explicit Logging(train::Training inner) : inner_(std::move(inner)) {}
  torch::nn::Module& module() override { return inner_.task->module(); }
  void initialize(std::uint64_t seed) override { inner_.task->initialize(seed); }
  data::DatasetPtr training() override { return inner_.data->training(); }
  data::DatasetPtr validation() override { return inner_.data->validation(); }
  at::Tensor training_step(const data::Samples& batch) override {
    const at::Tensor loss = inner_.task->training_step(batch);
    log("training_loss", loss);
    log("rows", train::Sum{static_cast<double>(batch.input.size(0))});
    log("one", 1.0);
    log("two", 2.0);
    log("largest", train::Max{3.0});
    return loss;
  }
  void validation_step(const data::Samples& batch) override {
    const train::LogTo nowhere(*inner_.task, nullptr);
    log("test_loss", inner_.task->training_step(batch));
  }

 private:
  train::Training inner_;
};

struct Clock {
  double processor = 0;
  double wall = 0;
  static Clock now() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return {seconds(usage.ru_utime) + seconds(usage.ru_stime), std::chrono::duration<double>(since).count()};
  }
};

class Measure : public train::Callback {
 public:
  explicit Measure(std::int64_t steps) : steps_(steps) {}
  std::string name() const override { return "measure"; }
  void end_step(train::Moment& m) override { note(m.step); }
  void note(std::int64_t step) {
    if (step == kWarmUp) begin_ = Clock::now();
    if (step == steps_) end_ = Clock::now();
  }
  void print() const {
    const auto n = static_cast<double>(steps_ - kWarmUp);
    std::printf("%.9f %.9f\n", (end_.processor - begin_.processor) / n, (end_.wall - begin_.wall) / n);
  }

 private:
  std::int64_t steps_;
  Clock begin_;
  Clock end_;
};

train::Training make(const std::string& what) {
  if (what == "mnist") return train::as_both(std::make_shared<train::MnistTask>());
  if (what == "mlp") return train::as_both(std::make_shared<train::MlpTask>());
  return train::as_both(std::make_shared<Small>());
}

int run(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string way = argv[1], what = argv[2];
  const std::int64_t steps = std::stoll(argv[3]);
  Communicator world = init();
  Logging task(make(what));
  const auto measure = std::make_shared<Measure>(steps);
  train::Config config{.run = {.dir = argv[4]}, .train = {.epochs = 1000, .max_steps = steps, .global_batch = 64}};
  if (way == "trainer") {
    config.log.csv = true;
    config.validate.every = "1000 epochs";
    config.stop.monitor = config.checkpoint.monitor = "test_loss";
    config.checkpoint.top_k = 3;
    train::Trainer(task, world,
                   {.name = what, .config = config, .write = [](const std::string&) {}, .callbacks = {measure}})
        .fit();
  } else {
    tensor::share_cores(world, 0);
    task.initialize(0);
    auto parallel = parallel::data_parallel(task.module(), world);
    optim::AdamW optimizer(parallel.parameters(), {});
    const data::Loader loader(task.training(), {.global_batch = 64, .shuffle = true}, world);
    double sum = 0;
    std::int64_t step = 0;
    for (std::int64_t epoch = 0; step < steps; ++epoch) {
      for (auto& batch : loader.epoch(epoch)) {
        const at::Tensor loss = task.training_step(batch);
        (loss * batch.weight).backward();
        optimizer.step();
        optimizer.zero_grad();
        sum += loss.item<double>();
        measure->note(++step);
        if (step == steps) break;
      }
    }
    if (!(sum > 0)) return 1;
  }
  if (world.rank() == 0) measure->print();
  return 0;
}

}  // namespace
}  // namespace reigen

int main(int argc, char** argv) { return reigen::run(argc, argv); }
