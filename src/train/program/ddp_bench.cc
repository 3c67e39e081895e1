#include "train/program/ddp_bench.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "base/text.h"
#include "config/checks.h"
#include "reigen/base/error.h"
#include "reigen/data/loader.h"
#include "reigen/format/atomic_file.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/tensor/compute_threads.h"
#include "reigen/tensor/gpu_work.h"
#include "reigen/train/task.h"
#include "tensor/calls.h"
#include "train/model/activations.h"
#include "train/model/device.h"
#include "train/model/parallel_options.h"
#include "train/model/precision.h"
#include "train/run/agree.h"
#include "train/run/step_times.h"

namespace reigen::train {

namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& got, const char* expected) {
  throw InvalidArgument(Report{.what = fmt::format("bench ddp: {} is wrong", option),
                               .got = got,
                               .expected = expected,
                               .fix = "reigen bench ddp --help"},
                        ExitCode::kUsage);
}

std::int64_t parse_count(const std::string& option, const std::string& text) {
  constexpr std::int64_t kMost = 1'000'000;
  const auto number = base::parse<std::int64_t>(text);
  if (!number || *number < 1 || *number > kMost) refuse(option, text, "a number from 1 on");
  return *number;
}

std::vector<double> parse_sizes(const std::string& text) {
  std::vector<double> sizes;
  for (const std::string& item : base::split(text.empty() ? " " : text, ',')) {
    const auto size = base::parse<double>(item);
    if (!size || !(*size >= 0))
      refuse("--buckets", text, "sizes in MiB with commas between them, 0: each parameter alone");
    sizes.push_back(*size);
  }
  return sizes;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The times for one bucket size, in ms.
struct Samples {
  std::size_t buckets = 0;
  std::vector<double> forward, backward, communication, overlapped, naive;
};

// Measures one model with one batch. Every measured time is the time from a barrier until the slowest rank is done; on
// a GPU, until its work is done.
class Bench {
 public:
  Bench(const Recipe& recipe, const Config& config, const Communicator& world)
      : config_(config),
        world_(world),
        device_(device_of(config.train, world)),
        on_(device_.is_cuda() ? std::optional(device_) : std::nullopt),
        arithmetic_(config.train, device_),
        made_(recipe.make(config, false)),
        task_(made_.task) {
    if (device_.is_cuda()) tensor::separate_gpu_work(world);
    task_->module().train();
    task_->initialize(static_cast<std::uint64_t>(config.train.seed));
    activations_ = checkpoint_activations(*task_, recipe.name, config.train);
    data::LoaderOptions choice{
        .seed = static_cast<std::uint64_t>(config.train.seed), .limit = config.data.limit, .workers = 0};
    if (config.train.global_batch)
      choice.global_batch = config.train.global_batch;
    else
      choice.batch_size = recipe.batch_per_rank;
    data::Loader loader(made_.data->training(), choice, world);
    auto epoch = loader.epoch(0);
    const data::Batch& batch = *epoch.next();
    batch_ = batch;
    batch_.transform([](const at::Tensor& one) { return one.clone(); });
    batch_ = samples_on(device_, std::move(batch_));
    task_->module().to(device_);
    finish();
  }

  void measure(double bucket_mb, std::int64_t steps, Samples& samples) {
    {
      auto parallel = wrap(bucket_mb, true);
      step(parallel);  // after its first step, data_parallel forms new buckets
      samples.buckets = parallel.bucket_count();
      for (std::int64_t i = 0; i < steps; ++i) {
        clear();
        compute(parallel, samples);
        samples.communication.push_back(timed([&] { parallel.synchronize(); }));
        samples.overlapped.push_back(timed([&] { step(parallel); }));
      }
    }
    auto parallel = wrap(bucket_mb, false);
    step(parallel);
    for (std::int64_t i = 0; i < steps; ++i) samples.naive.push_back(timed([&] { step(parallel); }));
  }

 private:
  parallel::DataParallelBase wrap(double bucket_mb, bool overlap) {
    ParallelConfig config = config_.parallel;
    config.bucket_mb = bucket_mb;
    config.overlap = overlap;
    config.shard = "none";  // the benchmark measures gradients that are sent in buckets
    return {task_->module(), world_, data_parallel_options(config, world_)};
  }

  template <class Body>
  double timed(const Body& body) {
    world_.barrier();
    Stopwatch watch;
    body();
    finish();
    return slowest(watch.lap());
  }

  double slowest(double seconds) {
    world_.all_reduce(&seconds, &seconds, 1, DataType::kFloat64, ReduceOp::kMax, {.tag = "slowest rank"});
    return seconds * 1e3;
  }

  // Waits for the work that the rank has put on its GPU.
  void finish() const {
    if (device_.is_cuda()) tensor::finish_stream_of(task_->module().parameters().front());
  }

  at::Tensor loss() {
    const auto autocast = compute_type(config_.train.precision, device_);
    return task_->training_step(batch_);
  }

  void clear() {
    for (const at::Tensor& parameter : task_->module().parameters()) parameter.mutable_grad() = at::Tensor();
  }

  void step(parallel::DataParallelBase& parallel) {
    clear();
    parallel.prepare_forward();
    loss().backward();
  }

  void compute(parallel::DataParallelBase& parallel, Samples& samples) {
    const auto guard = parallel.no_sync();
    parallel.prepare_forward();
    at::Tensor result;
    samples.forward.push_back(timed([&] { result = loss(); }));
    samples.backward.push_back(timed([&] { result.backward(); }));
  }

  const Config& config_;
  const Communicator& world_;
  const at::Device device_;
  const c10::OptionalDeviceGuard on_;
  const Arithmetic arithmetic_;
  Training made_;
  std::shared_ptr<Task> task_;
  std::unique_ptr<nn::ActivationCheckpoint> activations_;
  data::Samples batch_;
};

}  // namespace

void require_measurable(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const ParallelConfig usual;
  if (parallel.shard != "auto" && parallel.shard != "none")
    refuse("--parallel.shard", parallel.shard, "none: it measures gradients that travel");
  if (parallel.bucket_mb != usual.bucket_mb)
    refuse("--parallel.bucket_mb", fmt::format("{}", parallel.bucket_mb), "none: --buckets lists the sizes");
  if (parallel.overlap != usual.overlap) refuse("--parallel.overlap", "false", "none: it measures both");
  if (config.train.micro_batch > 0)
    refuse("--train.micro_batch", fmt::format("{}", config.train.micro_batch), "none: it measures one backward");
  if (config::acts_on_weights(parallel.strategy))
    refuse("--parallel.strategy", parallel.strategy.name, "one of gradients: there are no steps of weights to measure");
}

DdpBenchOptions parse_ddp_bench(const std::vector<std::string>& arguments) {
  DdpBenchOptions options;
  bool has_recipe = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string word = arguments[i];
    if (word == "--help" || word == "-h") {
      options.help = true;
      continue;
    }
    if (!word.starts_with("-") && !has_recipe) {
      options.recipe = word;
      has_recipe = true;
      continue;
    }
    std::string value;
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool is_ours = name == "--buckets" || name == "--steps" || name == "--rounds" || name == "--json";
    if (!is_ours) {
      options.rest.push_back(word);
      if (equals == std::string::npos && i + 1 < arguments.size()) options.rest.push_back(arguments[++i]);
      continue;
    }
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      refuse(name, "no value", "a value behind it");
    }
    if (name == "--buckets") options.buckets_mb = parse_sizes(value);
    if (name == "--steps") options.steps = parse_count(name, value);
    if (name == "--rounds") options.rounds = parse_count(name, value);
    if (name == "--json") options.json = value;
  }
  return options;
}

std::string ddp_bench_help() {
  return "reigen bench ddp [RECIPE] [-n N] [options]: where the time of a data-parallel step goes\n\n"
         "Times forward and backward alone, the communication of all gradients alone, and both together: overlapped\n"
         "(buckets travel while backward runs) and naive (all after it). Medians over rounds; the slowest rank's "
         "time.\n"
         "RECIPE: resnet18 unless told otherwise; reigen train --help lists them.\n\n"
         "  --buckets 0,1,5,10,25,50,100   sizes in MiB; 0: every parameter alone\n"
         "  --steps 3                      steps of each kind in a round\n"
         "  --rounds 5                     rounds over all sizes\n"
         "  --json FILE                    rows as JSON\n"
         "  --section.key VALUE            options of the recipe: reigen train RECIPE --help\n";
}

double DdpBenchRow::hidden() const {
  const double smaller = std::min(communication_ms, backward_ms);
  return smaller > 0 ? (sum_ms() - overlapped_ms) / smaller : 0;
}

std::vector<DdpBenchRow> measure_ddp(const Recipe& recipe, const Config& config, const DdpBenchOptions& options,
                                     const Communicator& world) {
  tensor::share_cores(world, static_cast<int>(config.train.threads));
  Bench bench(recipe, config, world);
  std::vector<Samples> samples(options.buckets_mb.size());
  for (std::int64_t round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < samples.size(); ++i) bench.measure(options.buckets_mb[i], options.steps, samples[i]);
  }
  std::vector<DdpBenchRow> rows;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    rows.push_back({.bucket_mb = options.buckets_mb[i],
                    .buckets = samples[i].buckets,
                    .forward_ms = median(samples[i].forward),
                    .backward_ms = median(samples[i].backward),
                    .communication_ms = median(samples[i].communication),
                    .overlapped_ms = median(samples[i].overlapped),
                    .naive_ms = median(samples[i].naive)});
  }
  return rows;
}

namespace {

std::string to_text(const std::vector<DdpBenchRow>& rows) {
  std::string text =
      fmt::format("{:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>7}\n", "bucket MB", "buckets", "forward",
                  "backward", "comm", "sum", "overlapped", "naive", "exposed", "hidden");
  for (const DdpBenchRow& row : rows) {
    text += fmt::format("{:>9} {:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>10.2f} {:>9.2f} {:>9.2f} {:>5.0f} %\n",
                        row.bucket_mb, row.buckets, row.forward_ms, row.backward_ms, row.communication_ms, row.sum_ms(),
                        row.overlapped_ms, row.naive_ms, row.exposed_ms(), std::clamp(row.hidden(), 0.0, 1.0) * 100);
  }
  return text;
}

std::string to_json(const std::vector<DdpBenchRow>& rows, const std::string& recipe, int ranks,
                    const std::string& device) {
  nlohmann::json list = nlohmann::json::array();
  for (const DdpBenchRow& row : rows) {
    list.push_back({{"recipe", recipe},
                    {"ranks", ranks},
                    {"device", device},
                    {"bucket_mb", row.bucket_mb},
                    {"buckets", row.buckets},
                    {"forward_ms", row.forward_ms},
                    {"backward_ms", row.backward_ms},
                    {"communication_ms", row.communication_ms},
                    {"sum_ms", row.sum_ms()},
                    {"overlapped_ms", row.overlapped_ms},
                    {"naive_ms", row.naive_ms},
                    {"exposed_ms", row.exposed_ms()},
                    {"hidden", std::clamp(row.hidden(), 0.0, 1.0)}});
  }
  return list.dump(1) + "\n";
}

}  // namespace

void report_ddp(const Recipe& recipe, const Config& config, const DdpBenchOptions& options, const Communicator& world) {
  const bool prints = world.rank() == 0;
  const bool on_gpu = !world.device().is_cpu();
  std::optional<format::AtomicFile> json;  // opened now, so that a missing folder is reported at once
  together(world, "bench ddp", [&] {
    if (prints && !options.json.empty()) json.emplace(options.json);
  });
  if (prints) {
    fmt::print("{}: {} ({}), {} of {}; milliseconds, medians, the slowest rank's\n", recipe.name,
               base::counted(world.size(), "rank"),
               on_gpu ? fmt::format("{} on {}", world.device_backend(), config.train.device) : world.backend(),
               base::counted(options.rounds, "round"), base::counted(options.steps, "step"));
    std::fflush(stdout);
  }
  const std::vector<DdpBenchRow> rows = measure_ddp(recipe, config, options, world);
  if (!prints) return;
  fmt::print("{}", to_text(rows));
  if (!json) return;
  const std::string text = to_json(rows, recipe.name, world.size(), config.train.device);
  json->write(std::as_bytes(std::span(text)));
  json->commit();
}

}  // namespace reigen::train
