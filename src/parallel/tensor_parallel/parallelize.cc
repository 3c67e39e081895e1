#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "parallel/check/model_check.h"
#include "parallel/tensor_parallel/divided.h"
#include "reigen/base/error.h"
#include "reigen/layout/layout.h"
#include "reigen/parallel/tensor_parallel.h"
#include "reigen/tensor/collectives.h"
#include "reigen/tensor/data_type.h"
#include "reigen/tensor/flat_parameters.h"
#include "tensor/calls.h"
#include "tensor/hooks/taken_over.h"
#include "tensor/memory/away_memory.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::parallel {

struct TensorParallel::State {
  mesh::Mesh mesh;
  std::string axis;
  Region region;
  std::map<std::string, layout::Split> splits = {};
  std::map<std::string, layout::Shape> shapes = {};  // of the whole parameters

  // Where the part of a rank begins in each section of the divided dimension, and its size.
  std::pair<std::int64_t, std::int64_t> chunk(const std::string& parameter, int rank) const {
    const layout::Split& split = splits.at(parameter);
    const std::int64_t section = shapes.at(parameter)[split.dimension] / split.sections;
    return layout::chunk_of(section, split.block, rank, region.group.size());
  }
  layout::Shape shape_of_part(const std::string& parameter, int rank) const {
    const layout::Split& split = splits.at(parameter);
    layout::Shape shape = shapes.at(parameter);
    shape[split.dimension] = split.sections * chunk(parameter, rank).second;
    return shape;
  }
  // The elements of a rank in each section of the whole parameter.
  std::vector<at::Tensor> views_of(const std::string& parameter, const at::Tensor& whole, int rank) const {
    const layout::Split& split = splits.at(parameter);
    const auto dimension = static_cast<std::int64_t>(split.dimension);
    const auto [begin, size] = chunk(parameter, rank);
    std::vector<at::Tensor> views;
    for (const at::Tensor& section : whole.chunk(split.sections, dimension)) {
      views.push_back(section.narrow(dimension, begin, size));
    }
    return views;
  }
  at::Tensor part_of(const std::string& parameter, const at::Tensor& whole, int rank) const {
    return at::cat(views_of(parameter, whole, rank), static_cast<std::int64_t>(splits.at(parameter).dimension))
        .contiguous();
  }
};

namespace {

using Kind = Style::Kind;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kColumn: return "column";
    case Kind::kRow: return "row";
    case Kind::kVocabulary: return "vocabulary";
    case Kind::kSequence: return "sequence";
    case Kind::kPositions: return "positions";
    case Kind::kShared: return "shared";
  }
  return "unknown";
}

InvalidArgument refused(const std::string& what, const std::string& got, const std::string& expected,
                        const std::string& fix) {
  return InvalidArgument(Report{.what = "[parallelize] " + what, .got = got, .expected = expected, .fix = fix});
}

std::vector<std::string> describe(const Plan& plan, const TensorParallelOptions& options) {
  std::vector<std::string> lines{
      fmt::format("axis {}, sequence {}, dimension {}", options.axis, options.sequence, options.dimension)};
  for (const auto& [pattern, style] : plan) {
    lines.push_back(fmt::format("{}: {} of {} sections of blocks of {}, gather_output {}", pattern, name_of(style.kind),
                                style.sections, style.block, style.gather_output));
  }
  return lines;
}

// A module of the plan.
struct Chosen {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  Style style;
};

std::vector<Chosen> choose_modules(const torch::nn::Module& model, const Plan& plan) {
  std::vector<Chosen> chosen;
  std::vector<bool> fits(plan.size(), false);
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    for (std::size_t i = 0; i < plan.size(); ++i) {
      if (::fnmatch(plan[i].first.c_str(), item.key().c_str(), 0) != 0) continue;
      fits[i] = true;
      chosen.push_back({item.key(), item.value(), plan[i].second});
      break;
    }
  }
  const auto unused = std::find(fits.begin(), fits.end(), false);
  if (unused == fits.end()) return chosen;
  std::vector<std::string> names;
  for (const auto& item : model.named_modules("", false)) {
    if (!item.value()->parameters(/*recurse=*/false).empty()) names.push_back(item.key());
  }
  throw refused("a pattern of the plan fits no module, or an earlier pattern fits all that it fits",
                plan[static_cast<std::size_t>(unused - fits.begin())].first,
                fmt::format("one of {}", fmt::join(names, ", ")), "correct the pattern, or leave it out");
}

// The first parameter with memory and the first one without, as text.
std::string describe_memory(const torch::nn::Module& model) {
  std::string with = "no parameter", without = "no parameter";
  for (const tensor::NamedParameter& entry : tensor::named_parameters(model)) {
    std::string& first = tensor::is_away(entry.parameter) ? without : with;
    if (first == "no parameter") first = entry.name;
  }
  return fmt::format("{} has memory, {} has none", with, without);
}

class Placer {
 public:
  Placer(const torch::nn::Module& model, TensorParallel::State& state) : state_(state) {
    for (const tensor::NamedParameter& entry : tensor::named_parameters(model)) {
      names_[entry.parameter.unsafeGetTensorImpl()] = entry.name;
    }
  }

  // Replaces the module's weights by this rank's parts, and enters them in the table of divided weights.
  void place(const Chosen& chosen) {
    if (is_whole(chosen.style.kind)) return place_whole(chosen);
    const auto* const embedding = chosen.module->as<torch::nn::EmbeddingImpl>();
    const bool is_embedding = embedding != nullptr;
    const auto own = chosen.module->named_parameters(/*recurse=*/false);
    for (const auto& item : own) {
      require(chosen, item.key() == "weight" || item.key() == "bias", "a module with a weight and a bias only");
    }
    const at::Tensor* const weight = own.find("weight");
    const bool has_matrix = weight != nullptr && weight->dim() == 2;
    if (chosen.style.kind == Kind::kVocabulary) {
      require(chosen, is_embedding, "a torch::nn::Embedding");
      const bool is_plain = !embedding->options.max_norm() && !embedding->options.padding_idx() &&
                            !embedding->options.scale_grad_by_freq() && !embedding->options.sparse();
      require(chosen, is_plain, "an Embedding without max_norm, padding_idx, scale_grad_by_freq and sparse");
    } else {
      require(chosen, has_matrix && !is_embedding, "a linear layer, with a weight [out, in]");
    }
    const bool is_row = chosen.style.kind == Kind::kRow;
    for (const auto& item : own) {
      const bool is_bias = item.key() == "bias";
      if (is_bias && is_row) {
        if (state_.region.sequence) remember(item.value(), whole(item.value(), Kind::kSequence));
      } else if (!is_bias || !chosen.style.gather_output) {
        divide(chosen, item.value(), is_row ? 1 : 0, is_bias);
      }
    }
  }

 private:
  static void require(const Chosen& chosen, bool fits, const char* expected) {
    if (fits) return;
    throw refused(fmt::format("module {} cannot be divided by the style {}", chosen.name, name_of(chosen.style.kind)),
                  chosen.module->name(), expected, "choose another style for it in the plan");
  }

  const std::string& name_of_parameter(const at::Tensor& parameter) const {
    return names_.at(parameter.unsafeGetTensorImpl());
  }

  Divided whole(const at::Tensor& parameter, Kind kind) const {
    return {.name = name_of_parameter(parameter), .kind = kind, .region = state_.region};
  }

  void place_whole(const Chosen& chosen) {
    if (!state_.region.sequence && chosen.style.kind != Kind::kShared) return;
    for (const at::Tensor& parameter : chosen.module->parameters(/*recurse=*/false)) {
      require(chosen, state_.splits.count(name_of_parameter(parameter)) == 0, "a module without divided weights");
      remember(parameter, whole(parameter, chosen.style.kind));
    }
  }

  void divide(const Chosen& chosen, const at::Tensor& parameter, std::size_t dimension, bool is_bias) {
    const std::string& name = name_of_parameter(parameter);
    if (const auto found = state_.splits.find(name); found != state_.splits.end()) {
      const bool is_same = found->second.dimension == dimension && found->second.block == chosen.style.block &&
                           found->second.sections == chosen.style.sections && !chosen.style.gather_output;
      require(chosen, is_same, "the same division, and no gather_output, in all modules that share the weight");
      return;
    }
    const std::int64_t sections = chosen.style.sections;
    const layout::Split split{
        .axis = state_.axis, .dimension = dimension, .block = chosen.style.block, .sections = sections};
    const layout::Shape shape = parameter.sizes().vec();
    require_divisible(name, shape[dimension], split);
    state_.splits[name] = split;
    state_.shapes[name] = shape;
    const int here = state_.region.group.rank();
    const at::NoGradGuard no_grad;
    if (tensor::is_away(parameter)) {
      parameter.set_data(
          tensor::away_tensor(state_.shape_of_part(name, here), parameter.scalar_type(), parameter.device()));
    } else {
      parameter.set_data(state_.part_of(name, parameter.detach(), here));
    }
    if (is_bias) return;
    remember(parameter, {.name = name,
                         .kind = chosen.style.kind,
                         .gather_output = chosen.style.gather_output,
                         .vocabulary = {.first = state_.chunk(name, here).first, .size = shape[0]},
                         .region = state_.region});
  }

  void require_divisible(const std::string& name, std::int64_t size, const layout::Split& split) const {
    const int ranks = state_.region.group.size();
    const std::int64_t block = split.block;
    if (block < 1 || split.sections < 1 || size % (block * split.sections) != 0) {
      throw refused(fmt::format("parameter {} does not consist of whole blocks", name),
                    fmt::format("size {}, {} sections, blocks of {}", size, split.sections, block),
                    fmt::format("divisors of {}", size), "give the style the width of a head, or no block");
    }
    const std::int64_t blocks = size / split.sections / block;
    if (blocks >= ranks) return;
    throw refused(fmt::format("parameter {} cannot be divided so that each rank has a part", name),
                  fmt::format("{} blocks of {} for {} ranks", blocks, block, ranks),
                  fmt::format("at most {} ranks", blocks),
                  fmt::format("give axis {} at most {} ranks, or choose a model with more of them (heads, for example)",
                              state_.axis, blocks));
  }

  TensorParallel::State& state_;
  std::map<const at::TensorImpl*, std::string> names_;
};

void require_shape(const std::string& parameter, const at::Tensor& values, const layout::Shape& shape) {
  if (values.defined() && values.sizes() == at::IntArrayRef(shape)) return;
  throw InvalidArgument(
      Report{.what = fmt::format("[tensor_parallel] these values are not those of {}", parameter),
             .got = values.defined() ? fmt::format("[{}]", fmt::join(values.sizes(), ", ")) : "an undefined tensor",
             .expected = fmt::format("[{}]", fmt::join(shape, ", "))});
}

constexpr const char* kTag = "part of a parameter";

void send_values(const Communicator& group, const at::Tensor& values, int to) {
  comm::CallList calls;
  calls.send(values.const_data_ptr(), static_cast<std::size_t>(values.numel()),
             tensor::to_data_type(values.scalar_type()), to, {.tag = kTag, .after = tensor::stream_of(values)});
  tensor::run_calls(group, calls, values);
}

void receive_values(const Communicator& group, const at::Tensor& values, int from) {
  comm::CallList calls;
  calls.recv(values.mutable_data_ptr(), static_cast<std::size_t>(values.numel()),
             tensor::to_data_type(values.scalar_type()), from, {.tag = kTag, .after = tensor::stream_of(values)});
  tensor::run_calls(group, calls, values);
}

}  // namespace

TensorParallel::TensorParallel(std::shared_ptr<State> state) : state_(std::move(state)) {}

const Region& TensorParallel::region() const { return state_->region; }
const mesh::Mesh& TensorParallel::mesh() const { return state_->mesh; }
const std::string& TensorParallel::axis() const { return state_->axis; }
const std::map<std::string, layout::Split>& TensorParallel::splits() const { return state_->splits; }

const layout::Shape& TensorParallel::whole_shape(const std::string& parameter) const {
  const auto found = state_->shapes.find(parameter);
  if (found != state_->shapes.end()) return found->second;
  throw InvalidArgument(Report{.what = "[tensor_parallel] this parameter is not divided", .got = parameter});
}

void TensorParallel::scatter(const std::string& parameter, const at::Tensor& whole, at::Tensor part, int root) const {
  const Communicator& group = state_->region.group;
  const bool is_root = group.rank() == root;
  const layout::Shape& shape = whole_shape(parameter);
  if (is_root) require_shape(parameter, whole, shape);
  require_shape(parameter, part, state_->shape_of_part(parameter, group.rank()));
  const at::NoGradGuard no_grad;
  if (!is_root) {
    const at::Tensor own = part.is_contiguous() ? part : at::empty(part.sizes(), part.options());
    receive_values(group, own, root);
    if (!own.is_same(part)) part.copy_(own);
    return;
  }
  const auto dimension = static_cast<std::int64_t>(state_->splits.at(parameter).dimension);
  for (int rank = 0; rank < group.size(); ++rank) {
    at::Tensor own = rank == root ? part : tensor::brief_tensor(state_->shape_of_part(parameter, rank), part.options());
    at::cat_out(own, state_->views_of(parameter, whole, rank), dimension);
    if (rank != root) send_values(group, own, rank);
  }
}

at::Tensor TensorParallel::gather(const std::string& parameter, const at::Tensor& part, int root) const {
  const Communicator& group = state_->region.group;
  const layout::Shape& shape = whole_shape(parameter);
  require_shape(parameter, part, state_->shape_of_part(parameter, group.rank()));
  const at::NoGradGuard no_grad;
  if (group.rank() != root) {
    send_values(group, part.contiguous(), root);
    return {};
  }
  const layout::Split& split = state_->splits.at(parameter);
  const at::Tensor whole = tensor::brief_tensor(shape, part.options());
  for (int rank = 0; rank < group.size(); ++rank) {
    at::Tensor own = part;
    if (rank != root) {
      own = tensor::brief_tensor(state_->shape_of_part(parameter, rank), part.options());
      receive_values(group, own, rank);
    }
    const auto sections = own.chunk(split.sections, static_cast<std::int64_t>(split.dimension));
    const auto views = state_->views_of(parameter, whole, rank);
    for (std::size_t i = 0; i < views.size(); ++i) views[i].copy_(sections[i]);
  }
  return whole;
}

void TensorParallel::use_on_this_thread() const { use_divided_weights_on_this_thread(); }

Style column(const ColumnOptions& options) {
  return {.kind = Kind::kColumn,
          .block = options.block,
          .sections = options.sections,
          .gather_output = options.gather_output};
}
Style row(const RowOptions& options) { return {.kind = Kind::kRow, .block = options.block}; }
Style vocabulary() { return {.kind = Kind::kVocabulary}; }
Style sequence() { return {.kind = Kind::kSequence}; }
Style shared() { return {.kind = Kind::kShared}; }
Style positions() { return {.kind = Kind::kPositions}; }

TensorParallel parallelize(torch::nn::Module& model, const mesh::Mesh& mesh, const Plan& plan,
                           const TensorParallelOptions& options) {
  const Communicator group = mesh.along(options.axis);
  auto state = std::make_shared<TensorParallel::State>(
      TensorParallel::State{.mesh = mesh,
                            .axis = options.axis,
                            .region = {.group = group, .sequence = options.sequence, .dimension = options.dimension}});
  for (const at::Tensor& parameter : model.parameters()) {
    if (!tensor::is_taken_over(parameter)) continue;
    throw refused("the model is divided already", "", "a model with whole weights", "make a new model");
  }
  std::vector<std::string> lines = describe_model(model);
  for (std::string& line : describe(plan, options)) lines.push_back(std::move(line));
  lines.push_back(describe_memory(model));
  check_equal_on_all_ranks(lines, group, "parallelize");
  const std::vector<Chosen> chosen = choose_modules(model, plan);
  if (group.size() > 1) {
    const at::NoGradGuard no_grad;
    const auto begin_as_first = [&](const std::vector<at::Tensor>& tensors) {
      for (const at::Tensor& one : tensors) {
        if (!tensor::is_away(one)) tensor::broadcast_(one.detach(), 0, group);
      }
    };
    begin_as_first(model.parameters());
    begin_as_first(model.buffers());
    Placer placer(model, *state);
    for (const Chosen& one : chosen) placer.place(one);
    use_divided_weights_on_this_thread();
  }
  return TensorParallel(std::move(state));
}

}  // namespace reigen::parallel
