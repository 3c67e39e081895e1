// Figures of batches that add up exactly: over the batches of an epoch, and over the ranks. A task gives them to its
// log() (task.h); a loop of your own uses Metrics alone:
//
//   Metrics metrics;
//   for (...) {
//     metrics.begin_batch(batch.terms);
//     metrics.add("loss", loss);                                 // the mean over the terms of the batch
//     metrics.add("accuracy", accuracy(scores, batch.target));
//     metrics.finish(metrics.take());
//   }
//   const Figures all = metrics.gather(world);                   // e.g. all.at("accuracy")
//
// The figure of a mean is  sum over ranks and batches of (terms · mean) / sum of terms, in fp64, in the order of the
// batches and then of the ranks. A figure of your own is a struct with merge() and value(), for example
//
//   struct Largest {
//     double most = 0;
//     void merge(const Largest& other) { most = std::max(most, other.most); }
//     double value() const { return most; }
//   };
//
// Thread rule: one thread at a time may use a Metrics. The other types are values.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// A struct whose default is the figure of no batch. merge() adds another one. Ranks exchange its bytes: those of the
// struct, or, if it has memory elsewhere, those that bytes() returns and load() takes.
template <class M>
concept Metric = std::default_initializable<M> && requires(M one, const M& other) {
  one.merge(other);
  { other.value() } -> std::convertible_to<double>;
} &&(std::is_trivially_copyable_v<M> || requires(M one, const M& other, std::string_view bytes) {
  { other.bytes() } -> std::convertible_to<std::string>;
  one.load(bytes);
});

// sum / count; NaN if the count is 0.
struct Mean {
  double sum = 0;
  double count = 0;
  void merge(const Mean& other) { sum += other.sum, count += other.count; }
  double value() const { return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN(); }
};

struct Sum {
  double sum = 0;
  void merge(const Sum& other) { sum += other.sum; }
  double value() const { return sum; }
};

struct Max {
  double largest = -std::numeric_limits<double>::infinity();
  void merge(const Max& other) { largest = largest < other.largest ? other.largest : largest; }
  double value() const { return largest; }
};

// The exponential of a mean loss.
struct Perplexity {
  Mean loss = {};
  void merge(const Perplexity& other) { loss.merge(other.loss); }
  double value() const;
};

// How often each class was predicted for each class. value() is the share that is right.
class ConfusionMatrix {
 public:
  ConfusionMatrix() = default;
  // `scores` [N, classes], `target` [N]: the class is that of the largest score. Negative targets do not count. Throws
  // DataError for a target that is no class. Waits for a GPU.
  ConfusionMatrix(const at::Tensor& scores, const at::Tensor& target);

  std::int64_t classes() const { return classes_; }
  std::int64_t count(std::int64_t target, std::int64_t predicted) const;
  void merge(const ConfusionMatrix& other);  // throws InvalidArgument for another number of classes
  double value() const;
  std::string bytes() const;
  void load(std::string_view bytes);

 private:
  std::int64_t classes_ = 0;
  std::vector<std::int64_t> counts_;  // [target][predicted]
};

// The mean of a batch with its own number of terms. Both tensors have one number. On a GPU they are read a step later.
struct BatchMean {
  at::Tensor sum = {};
  at::Tensor count = {};
};

// The share of the samples whose target is among the `k` largest scores. `scores` [N, classes], not normalised;
// `target` [N], where negative targets do not count.
BatchMean accuracy(const at::Tensor& scores, const at::Tensor& target, std::int64_t k = 1);

// Values by name, in the order in which they were logged first, and the number of terms behind them.
struct Figures {
  std::vector<std::pair<std::string, double>> values = {};
  std::int64_t terms = 0;

  std::optional<double> find(std::string_view name) const;
  double at(std::string_view name) const;  // throws InvalidArgument, with the names that there are
};

class Metrics {
 public:
  class Step;

  Metrics();
  ~Metrics();
  Metrics(Metrics&&) noexcept;
  Metrics& operator=(Metrics&&) noexcept;

  // What is added from now on belongs to a batch of so many terms of this rank. With 0, it does not count.
  void begin_batch(std::int64_t terms);

  // Throws InvalidArgument if the name was added with another type, or a tensor has more than one number. Never waits
  // for a GPU, except in a metric of your own that does so.
  void add(std::string_view name, double mean) { add(name, Mean{mean * terms(), terms()}); }
  void add(std::string_view name, const at::Tensor& mean);
  void add(std::string_view name, const BatchMean& mean);
  template <Metric M>
  void add(std::string_view name, const M& metric) {
    if (!counts()) return;
    static_cast<Held<M>&>(held(name, Held<M>())).metric.merge(metric);
  }

  // Takes what was added since the last take(): one step. For numbers on a GPU a copy to the host is enqueued.
  [[nodiscard]] Step take();
  // Returns this rank's figures of the step, and adds them to the sums, unless `counts` is false. Waits for the copies
  // of take().
  std::vector<std::pair<std::string, double>> finish(Step step, bool counts = true);
  // For a graph that computes the tensors of a step again: take_for_replay() takes what was added in the capture, and
  // add_again() adds it after a replay, for batches of so many terms. Numbers of the host are not added again.
  [[nodiscard]] Step take_for_replay();
  void add_again(const Step& step, std::span<const std::int64_t> terms);

  // Collective and blocking: two calls for all names together. Returns the figures of all ranks since the last gather()
  // or the beginning, and begins anew. A rank with `takes_part` false brings none. Throws InvalidArgument on every rank
  // if a name was added on some of the ranks only that had a batch, or with another type.
  Figures gather(const Communicator& world, bool takes_part = true);

  // The sums so far as bytes, for a checkpoint; empty if nothing was added. restore() adds them again.
  std::string state() const;
  void restore(std::string_view state);

 private:
  struct Any {
    virtual ~Any() = default;
    virtual const std::type_info& type() const = 0;
    virtual std::unique_ptr<Any> empty() const = 0;
    virtual void merge(const Any& other) = 0;
    virtual double value() const = 0;
    virtual std::string bytes() const = 0;
    virtual void add_bytes(std::string_view bytes) = 0;
  };
  template <Metric M>
  struct Held final : Any {
    const std::type_info& type() const override { return typeid(M); }
    std::unique_ptr<Any> empty() const override { return std::make_unique<Held>(); }
    void merge(const Any& other) override { metric.merge(static_cast<const Held&>(other).metric); }
    double value() const override { return static_cast<double>(metric.value()); }
    std::string bytes() const override {
      if constexpr (std::is_trivially_copyable_v<M>)
        return {reinterpret_cast<const char*>(&metric), sizeof(M)};
      else
        return metric.bytes();
    }
    void add_bytes(std::string_view bytes) override {
      M other;
      if constexpr (std::is_trivially_copyable_v<M>) {
        require_size(bytes, sizeof(M));
        std::memcpy(static_cast<void*>(&other), bytes.data(), sizeof(M));
      } else {
        other.load(bytes);
      }
      metric.merge(other);
    }
    M metric = {};
  };
  struct Sums;

  static void require_size(std::string_view bytes, std::size_t size);
  bool counts() const;
  double terms() const;
  std::string bytes(bool had_batch) const;
  void take_up_restored();
  Any& held(std::string_view name, const Any& like);

  std::unique_ptr<Step> step_;
  std::unique_ptr<Sums> sums_;
  std::int64_t terms_ = 0;
};

// What was added in one step.
class Metrics::Step {
 public:
  std::vector<std::string> names_of_host() const;  // of figures that are not numbers on a GPU

  Step();
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

 private:
  friend class Metrics;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::train
