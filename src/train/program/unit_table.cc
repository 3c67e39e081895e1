#include "train/program/unit_table.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "data/checked.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "train/files/summary_values.h"
#include "train/model/precision.h"

namespace reigen::train {
namespace {

constexpr std::size_t kNameWidth = 24;
constexpr std::size_t kClassWidth = 13;
constexpr std::size_t kShapeWidth = 17;

// An operation of LibTorch that multiplies, and where its two factors are among its inputs.
struct Product {
  const char* name;
  std::size_t left;
  bool is_convolution = false;
  bool is_attention = false;
};
constexpr std::array<Product, 8> kProducts = {
    {{.name = "aten::mm", .left = 0},
     {.name = "aten::addmm", .left = 1},
     {.name = "aten::bmm", .left = 0},
     {.name = "aten::baddbmm", .left = 1},
     {.name = "aten::mv", .left = 0},
     {.name = "aten::addmv", .left = 1},
     {.name = "aten::convolution", .left = 0, .is_convolution = true},
     {.name = "aten::_scaled_dot_product_flash_attention_for_cpu", .left = 0, .is_attention = true}}};

// Counts the multiply-adds of this thread while it lives.
class MultiplyAdds {
 public:
  MultiplyAdds() : outer_(current), handle_(at::addThreadLocalCallback(callback())) { current = this; }
  ~MultiplyAdds() {
    at::removeCallback(handle_);
    current = outer_;
  }
  MultiplyAdds(const MultiplyAdds&) = delete;  // belongs to one scope
  MultiplyAdds& operator=(const MultiplyAdds&) = delete;

  double count() const { return count_; }

 private:
  struct Seen : at::ObserverContext {
    const Product* product = nullptr;
    std::vector<std::int64_t> left, right;
    bool is_transposed = false;
  };

  static at::RecordFunctionCallback callback() {
    return at::RecordFunctionCallback(&begin, &end)
        .needsInputs(true)
        .needsOutputs(true)
        .scopes({at::RecordScope::FUNCTION});
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto seen = std::make_unique<Seen>();
    const std::string_view name = function.name();
    const auto product =
        std::find_if(kProducts.begin(), kProducts.end(), [&](const auto& p) { return name == p.name; });
    if (product == kProducts.end() || current == nullptr) return seen;
    const auto inputs = function.inputs();
    if (inputs.size() < product->left + 2) return seen;
    seen->product = product;
    seen->left = inputs[product->left].toTensor().sizes().vec();
    seen->right = inputs[product->left + 1].toTensor().sizes().vec();
    if (product->is_convolution) seen->is_transposed = inputs[6].toBool();
    ++current->depth_;
    return seen;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    const auto* const seen = static_cast<const Seen*>(context);
    if (seen == nullptr || seen->product == nullptr || current == nullptr) return;
    if (--current->depth_ > 0) return;  // autocast calls the same operation again
    const auto size = [](const std::vector<std::int64_t>& shape) { return static_cast<double>(layout::numel(shape)); };
    if (seen->product->is_attention) {  // [B, H, T, W] and [B, H, S, W]: scores, and their sums of values
      current->count_ += 2 * size(seen->left) * static_cast<double>(seen->right[2]);
    } else if (seen->product->is_convolution) {
      const double each = size(seen->right) / static_cast<double>(seen->right[0]);
      const double results =
          seen->is_transposed ? size(seen->left) : static_cast<double>(function.outputs()[0].toTensor().numel());
      current->count_ += results * each;
    } else {
      current->count_ += size(seen->left) * (seen->right.size() > 1 ? static_cast<double>(seen->right.back()) : 1);
    }
  }

  static thread_local MultiplyAdds* current;  // a callback has no argument of its own

  MultiplyAdds* outer_;
  at::CallbackHandle handle_;
  int depth_ = 0;
  double count_ = 0;
};
thread_local MultiplyAdds* MultiplyAdds::current = nullptr;

struct Row {
  std::string name = {};
  std::string class_name = {};
  std::string shape = "-";
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  // of parameters and buffers
  double multiply_adds = -1;
  std::int64_t output_bytes = -1;
};

// As `width` characters at most, without the middle.
std::string shortened(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::size_t behind = (width - 2) / 2;
  return text.substr(0, width - 2 - behind) + ".." + text.substr(text.size() - behind);
}

// "4.09 G"
std::string rounded(double count) {
  if (count < 0) return "-";
  std::size_t unit = 0;
  constexpr std::array<const char*, 6> kUnits = {"", " k", " M", " G", " T", " P"};
  for (; count >= 999.5 && unit + 1 < kUnits.size(); ++unit) count /= 1000;
  const int digits = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, digits, kUnits[unit]);
}

std::string line_of(const Row& row) {
  return fmt::format("{:<{}} {:<{}} {:<{}} {:>12} {:>9} {:>9} {:>9}\n", shortened(row.name, kNameWidth), kNameWidth,
                     shortened(row.class_name, kClassWidth), kClassWidth, shortened(row.shape, kShapeWidth),
                     kShapeWidth, row.parameters, rounded(row.multiply_adds),
                     format_bytes(static_cast<std::uint64_t>(row.bytes)),
                     row.output_bytes < 0 ? "-" : format_bytes(static_cast<std::uint64_t>(row.output_bytes)));
}

// Counts parameters and buffers. A tied weight counts once.
class Weights {
 public:
  explicit Weights(const TrainConfig& train) : narrow_(train.weights == "bf16") {}

  // Adds those of the module to the row.
  void add(const torch::nn::Module& module, Row& row, bool recurse = true) {
    std::set<const void*> counted;
    for (const at::Tensor& parameter : module.parameters(recurse)) {
      if (!counted.insert(parameter.unsafeGetTensorImpl()).second) continue;
      seen_.insert(parameter.unsafeGetTensorImpl());
      row.parameters += parameter.numel();
      row.bytes += bytes_of(parameter);
    }
    for (const at::Tensor& buffer : module.buffers(recurse)) row.bytes += static_cast<std::int64_t>(buffer.nbytes());
  }
  // The parameters of the module that were in no row.
  Row rest_of(const torch::nn::Module& module) {
    Row rest{.name = "(in no unit)"};
    for (const at::Tensor& parameter : module.parameters()) {
      if (!seen_.insert(parameter.unsafeGetTensorImpl()).second) continue;
      rest.parameters += parameter.numel();
      rest.bytes += bytes_of(parameter);
    }
    return rest;
  }

 private:
  // With train.weights bf16 the trainer makes fp32 matrices narrow.
  std::int64_t bytes_of(const at::Tensor& parameter) const {
    const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
    return narrow_ && parameter.scalar_type() == at::kFloat && parameter.dim() > 1 ? bytes / 2 : bytes;
  }

  bool narrow_;
  std::set<const void*> seen_;
};

// Observes the units in a forward.
class Listener {
 public:
  explicit Listener(std::vector<nn::Unit> units) : units_(std::move(units)), rows_(units_.size()) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      rows_[u] = {.name = units_[u].name(), .class_name = class_of(units_[u].module()), .multiply_adds = 0};
      units_[u].attach(nn::Layer::kTrace, [this, u](const nn::Carry& input, const nn::Unit::Forward& inner) {
        const double before = adds_.count();
        nn::Carry output = inner(input);
        note(rows_[u], output, adds_.count() - before);
        return output;
      });
    }
  }
  ~Listener() {
    for (const nn::Unit& unit : units_) unit.detach(nn::Layer::kTrace);
  }
  Listener(const Listener&) = delete;  // the units have its address
  Listener& operator=(const Listener&) = delete;

  const std::vector<nn::Unit>& units() const { return units_; }
  std::vector<Row>& rows() { return rows_; }
  double multiply_adds() const { return adds_.count(); }

 private:
  static void note(Row& row, const nn::Carry& output, double multiply_adds) {
    row.multiply_adds += multiply_adds;
    row.output_bytes = 0;
    row.shape.clear();
    for (const at::Tensor& tensor : output) {
      if (!tensor.defined()) continue;
      if (row.shape.empty()) row.shape = fmt::format("{}", fmt::join(tensor.sizes(), "x"));
      row.output_bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    if (output.size() > 1) row.shape += fmt::format(" +{}", output.size() - 1);
  }

  std::vector<nn::Unit> units_;
  std::vector<Row> rows_;
  MultiplyAdds adds_;
};

// Returns the shape of the input.
std::string run_one_sample(Task& task, DataModule& data, const Config& config) {
  data.prepare();
  data.setup();
  const data::DatasetPtr training = data.training();
  if (!training || training->size() == 0) {
    throw DataError(Report{.what = "run.summary: there is no sample to run through the model",
                           .expected = "a DataModule whose training() has a sample"});
  }
  const std::vector<std::int64_t> first = {0};
  const data::Samples sample = data::checked(training->gather(first), *training, 1);
  const LogTo nowhere(task, nullptr);
  const auto autocast = compute_type(config.train.precision, at::kCPU);
  task.module().eval();  // a norm over the samples of a batch needs more than one
  task.training_step(sample);
  return fmt::format("{}", fmt::join(sample.input.sizes(), "x"));
}

}  // namespace

std::string unit_table_of(const std::string& name, Task& task, DataModule& data, const Config& config) {
  if (dynamic_cast<ManualTask*>(&task) != nullptr) {
    throw InvalidArgument(Report{.what = "run.summary runs training_step()",
                                 .got = "a task that makes its steps itself (ManualTask), which has none",
                                 .fix = "leave run.summary out"});
  }
  const at::NoGradGuard no_grad;
  task.initialize(static_cast<std::uint64_t>(config.train.seed));
  Listener listener(task.units());
  const std::string input = run_one_sample(task, data, config);
  Weights weights(config.train);
  std::vector<Row> rows = std::move(listener.rows());
  for (std::size_t u = 0; u < rows.size(); ++u) weights.add(listener.units()[u].module(), rows[u]);
  if (rows.empty()) {
    for (const auto& item : task.module().named_modules("", /*include_self=*/false)) {
      if (item.value()->parameters(/*recurse=*/false).empty()) continue;
      rows.push_back({.name = item.key(), .class_name = class_of(*item.value())});
      weights.add(*item.value(), rows.back(), /*recurse=*/false);
    }
  }
  if (const Row rest = weights.rest_of(task.module()); rest.parameters > 0) rows.push_back(rest);
  Row all{.name = "the model", .class_name = class_of(task.module()), .multiply_adds = listener.multiply_adds()};
  weights.add(task.module(), all);
  std::string text = fmt::format("{}: one sample of {}\n", name, input);
  text += fmt::format("{:<{}} {:<{}} {:<{}} {:>12} {:>9} {:>9} {:>9}\n", "unit", kNameWidth, "class", kClassWidth,
                      "output", kShapeWidth, "parameters", "mult-adds", "weights", "outputs");
  for (const Row& row : rows) {
    text += line_of(row);
    if (row.output_bytes >= 0) all.output_bytes = std::max<std::int64_t>(all.output_bytes, 0) + row.output_bytes;
  }
  text += line_of(all);
  text += "mult-adds: of the forward; backward has about twice as many\n";
  return text;
}

}  // namespace reigen::train
