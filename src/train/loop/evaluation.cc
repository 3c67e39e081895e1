#include "train/loop/evaluation.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>

#include "data/checked.h"
#include "data/loading/ahead.h"
#include "reigen/base/error.h"
#include "reigen/data/sampler.h"
#include "train/loop/wrong_label.h"
#include "train/model/device.h"
#include "train/model/precision.h"
#include "train/run/agree.h"
#include "train/run/workers.h"

namespace reigen::train {

namespace {

constexpr std::int64_t kCallsTogether = 16;  // number of forwards between two checks for a request to stop

}  // namespace

data::Range Evaluation::share(std::int64_t samples) const {
  return data::share_of({0, samples}, run_.data.rank(), run_.data.size());
}

// An evaluation is short, so it begins with as many threads as the one before had at its end. Where a GPU computes, all
// are free.
data::Workers Evaluation::workers() const {
  data::Workers workers = workers_of(run_);
  workers.now = run_.device.is_cpu() ? std::min(workers_, workers.most) : workers.most;
  return workers;
}

Figures Evaluation::run(const Over& over) {
  const std::int64_t samples = over.most > 0 ? std::min(over.most, over.data.size()) : over.data.size();
  const at::NoGradGuard no_grad;
  Metrics metrics;
  const LogTo to(run_.task, &metrics);
  metrics_ = &metrics;
  model_.settle();
  auto averaged = model_.is_made() ? model_.optimizers().swap_in_average() : std::nullopt;
  torch::nn::Module& module = run_.task.module();
  const bool was_training = module.is_training();
  module.eval();
  const bool gathers = model_.gathers();
  if (gathers) model_.parallel().prepare_forward();
  const data::Range mine = share(samples);
  const std::int64_t batch = run_.task.validation_batch();
  const std::int64_t count = calls(samples);
  bool ends = false;
  const auto indices_of = [&](std::int64_t call) {
    const std::int64_t first = mine.begin + call * batch;
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + batch, mine.end); ++i) indices.push_back(i);
    return indices;
  };
  std::optional<data::Ahead> ahead;
  if (!model_.pipeline()) {
    const data::Damage damage{.most = over.max_bad, .bad = bad_[&over.data]};
    ahead.emplace(over.data, count, indices_of, damage, data::AheadOptions{.workers = workers()});
  }
  for (std::int64_t first = 0; first < count && !ends; first += kCallsTogether) {
    const std::int64_t calls = std::min(kCallsTogether, count - first);
    if (model_.pipeline()) {
      run_in_stages(over, first, calls, indices_of);
    } else {
      for (std::int64_t call = first; call < first + calls; ++call) {
        const data::Batch made = ahead->next();
        if (made.count > 0) {
          run_some(over, made.indices, made, true);
        } else if (gathers) {
          // Gathering is collective, so all ranks make the same number of forwards.
          run_some(over, {0}, any_sample(over), false);
        }
      }
    }
    const bool is_last = first + calls == count;  // after the last forward the figures are complete, so they are used
    ends = over.may_end && !is_last && hears_of_stop();
  }
  if (ahead) workers_ = ahead->workers();
  module.train(was_training);
  if (averaged) averaged->end();
  metrics.finish(metrics.take());
  Figures figures = metrics.gather(run_.world, run_.logs());
  figures.terms /= run_.mesh ? run_.mesh->size("cp") : 1;  // all ranks that divide a sequence count its terms
  return figures;
}

bool Evaluation::hears_of_stop() {
  run_.stop = any_wishes_to_stop(run_.world, run_.wants_stop());
  return run_.stop;
}

data::Samples Evaluation::samples_of(const Over& over, const std::vector<std::int64_t>& indices) {
  return data::checked(over.data.gather(indices), over.data, static_cast<std::int64_t>(indices.size()));
}

// The first sample that is whole.
data::Samples Evaluation::any_sample(const Over& over) {
  for (std::int64_t index = 0;; ++index) {
    try {
      return samples_of(over, {index});
    } catch (const DataError&) {
      if (over.max_bad == 0 || index + 1 == over.data.size()) throw;
    }
  }
}

// What the step logs counts for the terms of its samples.
void Evaluation::take(const Over& over, const std::vector<std::int64_t>& indices, const data::Samples& samples,
                      bool counts) {
  std::int64_t terms = 0;
  for (const std::int64_t index : indices) terms += counts ? over.data.terms(index) : 0;
  metrics_->begin_batch(terms);
  try {
    over.step(samples_on(run_.device, samples), counts);
  } catch (const c10::IndexError& error) {
    throw_if_wrong_label(error, samples.target, indices, "the data that are evaluated");
    throw;
  }
}

void Evaluation::run_some(const Over& over, const std::vector<std::int64_t>& indices, const data::Samples& samples,
                          bool counts) {
  const auto autocast = compute_type(run_.config.train.precision, run_.device);
  take(over, indices, samples, counts);
}

// All ranks make the same number of forwards. A rank without samples runs one that does not count.
void Evaluation::run_in_stages(const Over& over, std::int64_t first, std::int64_t calls, const IndicesOf& indices_of) {
  const auto some = [&](int i) {
    const std::vector<std::int64_t> indices = indices_of(first + i);
    return indices.empty() ? std::vector<std::int64_t>{0} : indices;
  };
  model_.pipeline().evaluate(
      model_.parallel(), static_cast<int>(calls),
      {.input = [&](int i) { return run_.task.first_input(samples_on(run_.device, samples_of(over, some(i)))); },
       .loss =
           [&](int i) {
             take(over, some(i), samples_of(over, some(i)), !indices_of(first + i).empty());
             return at::Tensor();
           },
       .around =
           [&](schedule::Kind, int, const std::function<void()>& body) {
             const auto autocast = compute_type(run_.config.train.precision, run_.device);
             body();
           }});
}

// The number of forwards that the rank with the most samples makes.
std::int64_t Evaluation::calls(std::int64_t samples) const {
  const std::int64_t batch = run_.task.validation_batch();
  std::int64_t most = 0;
  for (int rank = 0; rank < run_.data.size(); ++rank) {
    const data::Range one = data::share_of({0, samples}, rank, run_.data.size());
    most = std::max(most, (one.end - one.begin + batch - 1) / batch);
  }
  return most;
}

}  // namespace reigen::train
