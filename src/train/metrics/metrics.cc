#include "reigen/train/metrics.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"
#include "tensor/late_values.h"
#include "train/run/agree.h"

namespace reigen::train {

// A metric as text: its name, the name of its type, and its bytes.
struct MetricEntry {
  std::string name = {};
  std::string type = {};
  std::string bytes = {};
};

namespace {

// Texts one after another, each after its length.
void put(std::string& to, std::string_view text) {
  const std::uint64_t size = text.size();
  to.append(reinterpret_cast<const char*>(&size), sizeof(size));
  to.append(text);
}

std::string_view take_text(std::string_view& from) {
  std::uint64_t size = 0;
  if (from.size() >= sizeof(size)) std::memcpy(&size, from.data(), sizeof(size));
  if (from.size() < sizeof(size) || from.size() - sizeof(size) < size)
    throw DataError(Report{.what = "the stored sums of metrics end too early", .got = "a damaged checkpoint"});
  const std::string_view text = from.substr(sizeof(size), size);
  from.remove_prefix(sizeof(size) + size);
  return text;
}

void put(std::string& to, const MetricEntry& entry) {
  put(to, entry.name);
  put(to, entry.type);
  put(to, entry.bytes);
}

// What Metrics::bytes() of one rank says.
struct OfRank {
  std::int64_t terms = 0;
  bool had_batch = false;
  std::vector<MetricEntry> metrics = {};
};

OfRank read_rank(std::string_view bytes) {
  OfRank one{.terms = base::parse<std::int64_t>(take_text(bytes)).value_or(0)};
  one.had_batch = !take_text(bytes).empty();
  while (!bytes.empty()) {
    MetricEntry metric;
    metric.name = take_text(bytes);
    metric.type = take_text(bytes);
    metric.bytes = take_text(bytes);
    one.metrics.push_back(std::move(metric));
  }
  return one;
}

template <class Values>
std::string names_of(const Values& values) {
  std::vector<std::string_view> names;
  for (const auto& one : values) names.emplace_back(one.first);
  return fmt::format("{}", fmt::join(names, ", "));
}

void require_one_number(std::string_view name, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.numel() == 1) return;
  throw InvalidArgument(
      Report{.what = fmt::format("log(\"{}\"): a tensor with one number is needed", name),
             .got = tensor.defined() ? fmt::format("{} numbers", tensor.numel()) : "an undefined tensor",
             .expected = "the mean over the batch",
             .fix = "take the mean, or log another figure"});
}

[[noreturn]] void refuse_type(std::string_view name) {
  throw InvalidArgument(Report{.what = fmt::format("the name \"{}\" is logged with two types", name),
                               .expected = "one kind of figure for a name",
                               .fix = "give one of them another name"});
}

}  // namespace

double Perplexity::value() const { return std::exp(loss.value()); }

std::optional<double> Figures::find(std::string_view name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.first == name; });
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

double Figures::at(std::string_view name) const {
  if (const auto value = find(name)) return *value;
  std::vector<std::string> known;
  for (const auto& one : values) known.push_back(one.first);
  const std::string near = base::nearest(std::string(name), known);
  throw InvalidArgument(Report{.what = "there is no figure of this name",
                               .got = std::string(name),
                               .expected = known.empty() ? "nothing was logged" : names_of(values),
                               .fix = near.empty() ? "choose one that is logged" : "did you mean " + near + "?"});
}

struct Metrics::Step::Impl {
  // A mean whose numbers are on a GPU: `count` is undefined if the sum is the mean of `terms` terms.
  struct Late {
    std::string name;
    at::Tensor sum = {};
    at::Tensor count = {};
    double terms = 0;
    std::size_t batch = 0;  // of the step
  };
  std::size_t batches = 0;
  std::vector<std::pair<std::string, std::unique_ptr<Any>>> held = {};
  std::vector<Late> late = {};
  std::optional<tensor::LateValues> numbers = {};
};

Metrics::Step::Step() : impl_(std::make_unique<Impl>()) {}
Metrics::Step::~Step() = default;
Metrics::Step::Step(Step&&) noexcept = default;
Metrics::Step& Metrics::Step::operator=(Step&&) noexcept = default;

std::vector<std::string> Metrics::Step::names_of_host() const {
  std::vector<std::string> names;
  for (const auto& one : impl_->held) names.push_back(one.first);
  return names;
}

struct Metrics::Sums {
  std::vector<std::pair<std::string, std::unique_ptr<Any>>> held = {};
  std::vector<MetricEntry> restored = {};  // of names that were not logged since
  std::int64_t terms = 0;
  bool had_batch = false;

  Any* find(std::string_view name) {
    for (auto& [known, metric] : held) {
      if (known == name) return metric.get();
    }
    return nullptr;
  }

  // The sums under this name, which are of the type of `like`.
  Any& sums_like(std::string_view name, const Any& like) {
    Any* found = find(name);
    if (found == nullptr) {
      held.emplace_back(name, like.empty());
      found = held.back().second.get();
      for (const MetricEntry& one : restored) {
        if (one.name == name && one.type == like.type().name()) found->add_bytes(one.bytes);
      }
      std::erase_if(restored, [&](const MetricEntry& one) { return one.name == name; });
    }
    if (found->type() != like.type()) refuse_type(name);
    return *found;
  }
};

Metrics::Metrics() : step_(std::make_unique<Step>()), sums_(std::make_unique<Sums>()) {}
Metrics::~Metrics() = default;
Metrics::Metrics(Metrics&&) noexcept = default;
Metrics& Metrics::operator=(Metrics&&) noexcept = default;

void Metrics::require_size(std::string_view bytes, std::size_t size) {
  if (bytes.size() == size) return;
  throw DataError(Report{.what = "a metric has other bytes than its type",
                         .got = fmt::format("{} bytes", bytes.size()),
                         .expected = fmt::format("{}", size),
                         .fix = "the program has changed since the checkpoint was written: resume with the old one"});
}

bool Metrics::counts() const { return terms_ > 0; }
double Metrics::terms() const { return static_cast<double>(terms_); }

void Metrics::begin_batch(std::int64_t terms) {
  terms_ = terms;
  ++step_->impl_->batches;
  sums_->terms += terms;
  if (terms > 0) sums_->had_batch = true;
}

// What the step has under this name, which is of the type of `like`.
Metrics::Any& Metrics::held(std::string_view name, const Any& like) {
  for (auto& [known, metric] : step_->impl_->held) {
    if (known != name) continue;
    if (metric->type() != like.type()) refuse_type(name);
    return *metric;
  }
  step_->impl_->held.emplace_back(name, like.empty());
  return *step_->impl_->held.back().second;
}

void Metrics::add(std::string_view name, const at::Tensor& mean) {
  if (!counts()) return;
  require_one_number(name, mean);
  if (mean.is_cpu()) return add(name, mean.item<double>());
  step_->impl_->late.push_back(
      {.name = std::string(name), .sum = mean.detach(), .terms = terms(), .batch = step_->impl_->batches - 1});
}

void Metrics::add(std::string_view name, const BatchMean& mean) {
  if (!counts()) return;
  require_one_number(name, mean.sum);
  require_one_number(name, mean.count);
  if (mean.sum.is_cpu() && mean.count.is_cpu())
    return add(name, Mean{.sum = mean.sum.item<double>(), .count = mean.count.item<double>()});
  step_->impl_->late.push_back(
      {.name = std::string(name), .sum = mean.sum.detach(), .count = mean.count.detach().to(mean.sum.device())});
}

Metrics::Step Metrics::take() {
  Step step;
  std::swap(step, *step_);
  if (step.impl_->late.empty()) return step;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> numbers;
  const auto add = [&](const at::Tensor& one) { numbers.push_back(one.to(at::kDouble).reshape({1})); };
  for (const auto& one : step.impl_->late) {
    add(one.sum);
    if (one.count.defined()) add(one.count);
  }
  step.impl_->numbers.emplace(at::cat(numbers));
  return step;
}

Metrics::Step Metrics::take_for_replay() {
  Step step;
  std::swap(step, *step_);
  return step;
}

void Metrics::add_again(const Step& step, std::span<const std::int64_t> terms) {
  for (const std::int64_t one : terms) begin_batch(one);
  for (auto one : step.impl_->late) {
    one.terms = static_cast<double>(terms[one.batch]);
    step_->impl_->late.push_back(std::move(one));
  }
}

std::vector<std::pair<std::string, double>> Metrics::finish(Step step, bool counts) {
  std::swap(step, *step_);  // so that held() finds the metrics of this step
  if (step_->impl_->numbers) {
    const auto numbers = step_->impl_->numbers->wait();
    auto number = numbers.begin();
    for (const auto& one : step_->impl_->late) {
      const double first = *number++;
      const Mean mean =
          one.count.defined() ? Mean{.sum = first, .count = *number++} : Mean{first * one.terms, one.terms};
      static_cast<Held<Mean>&>(held(one.name, Held<Mean>())).metric.merge(mean);
    }
  }
  std::swap(step, *step_);
  std::vector<std::pair<std::string, double>> values;
  for (auto& [name, metric] : step.impl_->held) {
    values.emplace_back(name, metric->value());
    if (counts) sums_->sums_like(name, *metric).merge(*metric);
  }
  return values;
}

std::string Metrics::state() const {
  const bool is_empty = sums_->held.empty() && sums_->restored.empty();
  return is_empty ? std::string() : bytes(/*had_batch=*/false);
}

// Terms, whether this rank had a batch since it began, and the name, type and bytes of each metric.
std::string Metrics::bytes(bool had_batch) const {
  std::string all;
  put(all, std::to_string(sums_->terms));
  put(all, had_batch ? "batch" : "");
  for (const auto& [name, metric] : sums_->held) {
    put(all, MetricEntry{name, metric->type().name(), metric->bytes()});
  }
  for (const MetricEntry& one : sums_->restored) put(all, one);
  return all;
}

void Metrics::restore(std::string_view state) {
  if (state.empty()) return;
  OfRank restored = read_rank(state);
  sums_->terms += restored.terms;
  for (MetricEntry& one : restored.metrics) {
    if (Any* known = sums_->find(one.name); known != nullptr && known->type().name() == one.type)
      known->add_bytes(one.bytes);
    else
      sums_->restored.push_back(std::move(one));
  }
}

namespace {

// Every rank that had a batch must have logged what the first of them logged. The order does not matter.
void require_same(const std::vector<OfRank>& ranks, std::size_t first) {
  const auto has = [](const OfRank& rank, const MetricEntry& wanted) {
    return std::any_of(rank.metrics.begin(), rank.metrics.end(),
                       [&](const MetricEntry& one) { return one.name == wanted.name && one.type == wanted.type; });
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].had_batch) continue;
    for (const auto& [from, to] : {std::pair(first, rank), std::pair(rank, first)}) {
      for (const MetricEntry& one : ranks[from].metrics) {
        if (has(ranks[to], one)) continue;
        throw common(InvalidArgument(
            Report{.what = fmt::format("log(\"{}\"): rank {} logged it, rank {} did not", one.name, from, to),
                   .expected = "the same names, with the same types, on all ranks that had a batch",
                   .fix = "log it for every batch; a name must not depend on the samples"}));
      }
    }
  }
}

}  // namespace

// Makes metrics of what was restored and not logged since, where the type is one of Reigen's.
void Metrics::take_up_restored() {
  const std::unique_ptr<Any> known[] = {std::make_unique<Held<Mean>>(), std::make_unique<Held<Sum>>(),
                                        std::make_unique<Held<Max>>(), std::make_unique<Held<Perplexity>>(),
                                        std::make_unique<Held<ConfusionMatrix>>()};
  const std::vector<MetricEntry> restored = sums_->restored;
  for (const MetricEntry& one : restored) {
    for (const std::unique_ptr<Any>& like : known) {
      if (one.type == like->type().name()) sums_->sums_like(one.name, *like);
    }
  }
}

Figures Metrics::gather(const Communicator& world, bool takes_part) {
  take_up_restored();
  const std::vector<std::string> texts =
      comm::all_gather_bytes(takes_part ? bytes(sums_->had_batch) : std::string(), world, "metrics");
  std::vector<OfRank> ranks;
  for (const std::string& text : texts) ranks.push_back(text.empty() ? OfRank{} : read_rank(text));
  auto first = std::find_if(ranks.begin(), ranks.end(), [](const OfRank& rank) { return rank.had_batch; });
  if (first == ranks.end())  // the rest of the epoch was left out: what was restored counts
    first = std::find_if(ranks.begin(), ranks.end(), [](const OfRank& rank) { return !rank.metrics.empty(); });
  Figures all;
  for (const OfRank& rank : ranks) all.terms += rank.terms;
  if (first != ranks.end()) {
    require_same(ranks, static_cast<std::size_t>(first - ranks.begin()));
    for (const MetricEntry& wanted : first->metrics) {
      const Any* known = sums_->find(wanted.name);
      double value = std::numeric_limits<double>::quiet_NaN();
      if (known != nullptr) {
        const std::unique_ptr<Any> sum = known->empty();
        for (const OfRank& rank : ranks) {
          for (const MetricEntry& one : rank.metrics) {
            if (one.name == wanted.name) sum->add_bytes(one.bytes);
          }
        }
        value = sum->value();
      }
      all.values.emplace_back(wanted.name, value);
    }
  }
  if (world.size() > 1 && !all.values.empty()) {
    // A rank without a batch does not know the types. The lowest rank that had one does, and gives all its values.
    std::vector<double> values;
    for (const auto& one : all.values) values.push_back(one.second);
    world.broadcast(values.data(), values.size(), DataType::kFloat64, static_cast<int>(first - ranks.begin()),
                    {.tag = "metrics"});
    for (std::size_t i = 0; i < values.size(); ++i) all.values[i].second = values[i];
  }
  *sums_ = Sums{};
  return all;
}

}  // namespace reigen::train
