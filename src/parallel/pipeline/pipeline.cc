#include "reigen/parallel/pipeline.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "nn/random_state.h"
#include "nn/skip_connections.h"
#include "parallel/check/model_check.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/stage_links.h"
#include "parallel/pipeline/stages.h"
#include "parallel/pipeline/step.h"
#include "reigen/base/error.h"
#include "reigen/nn/without_memory.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/schedule/cut.h"
#include "reigen/schedule/text.h"
#include "reigen/schedule/validate.h"
#include "reigen/tensor/collectives.h"
#include "tensor/calls.h"
#include "tensor/hooks/intercept.h"

namespace reigen::parallel {

using schedule::Action;

struct Pipeline::State {
  State(torch::nn::Module& model, mesh::Mesh its_mesh, PipelineOptions its_options);
  ~State() {
    for (const nn::Unit& unit : stages->units()) unit.detach(nn::Layer::kStage);
  }
  State(const State&) = delete;  // units point to it
  State& operator=(const State&) = delete;

  const schedule::Schedule& schedule_of(int micro_batches);
  schedule::Schedule generated(int micro_batches) const;
  schedule::Schedule forwards(int micro_batches) const;
  std::vector<int> placement() const;
  void attach();
  void tie();
  bool splits_backward();
  void run(const schedule::Schedule& schedule, const PipelineStep& what, const std::function<void(StepRun&)>& body);
  void sum_tied_gradients() const;
  at::Device device() const;

  mesh::Mesh mesh;
  PipelineOptions options;
  Communicator ranks;
  std::optional<Stages> stages;
  std::optional<StageLinks> links;
  std::map<int, schedule::Schedule> schedules = {};  // by the number of micro-batches
  struct Tied {
    Communicator ranks;
    std::vector<at::Tensor> parameters;
  };
  std::vector<Tied> tied = {};  // of this rank
  std::optional<LastStage> last_stage = {};
  PipelineReport report = {};
};

namespace {

std::vector<std::string> describe_pipeline(const PipelineOptions& options,
                                           const std::vector<std::size_t>& first_units) {
  std::vector<std::string> lines{fmt::format("axis {}, schedule {}, virtual_stages {}, first units {}", options.axis,
                                             to_text(options.schedule), options.virtual_stages,
                                             fmt::join(first_units, " "))};
  for (const nn::Unit& unit : options.units) lines.push_back("unit " + unit.name());
  for (const nn::Skip& skip : options.skips) lines.push_back(fmt::format("skip from {} to {}", skip.from, skip.to));
  if (options.own) lines.push_back("own schedule " + schedule::to_text(*options.own));
  return lines;
}

std::vector<std::size_t> cut_units(const PipelineOptions& options, int stages) {
  if (!options.first_units.empty()) {
    const std::vector<std::size_t>& first = options.first_units;
    const bool rises = std::adjacent_find(first.begin(), first.end(), std::greater_equal<>()) == first.end();
    if (first.size() == static_cast<std::size_t>(stages) && first.front() == 0 && rises &&
        first.back() < options.units.size()) {
      return first;
    }
    throw refused_by_pipeline(
        "first_units do not cut the units into the stages", fmt::format("{}", fmt::join(first, ", ")),
        fmt::format("{} numbers that rise from 0 to at most {}", stages, options.units.size() - 1),
        "leave first_units out");
  }
  std::vector<double> costs = options.costs;
  if (costs.empty()) {
    for (const nn::Unit& unit : options.units) {
      double count = 0;
      for (const at::Tensor& parameter : unit.parameters()) count += static_cast<double>(parameter.numel());
      costs.push_back(count);
    }
  } else if (costs.size() != options.units.size()) {
    throw refused_by_pipeline("the costs are not those of the units", fmt::format("{} costs", costs.size()),
                              fmt::format("{}, one for each unit", options.units.size()), "leave costs out");
  }
  return schedule::cut(costs, stages);
}

// Weights are gathered unit by unit, and gradients averaged at the end of a rank's list, by data_parallel().
void refuse_gathers(const schedule::Schedule& schedule) {
  for (const std::vector<Action>& list : schedule.actions) {
    for (const Action& action : list) {
      if (is_compute(action.kind) || is_message(action.kind)) continue;
      throw refused_by_pipeline("the schedule gathers weights or averages gradients", to_text(action),
                                "actions that compute, and messages: data_parallel() does the others",
                                "leave UNSHARD, RESHARD and REDUCE_GRAD out");
    }
  }
}

// A schedule of the user's own has messages for the skip connections that it names.
void check_skips(const schedule::Schedule& own, const StageLinks& links) {
  const std::vector<schedule::Skip> needed = links.scheduled();
  const auto missing_in = [](const std::vector<schedule::Skip>& all, const std::vector<schedule::Skip>& these) {
    return std::find_if(these.begin(), these.end(),
                        [&](const schedule::Skip& one) { return std::find(all.begin(), all.end(), one) == all.end(); });
  };
  const auto text_of = [](const schedule::Skip& skip) { return fmt::format("skip {} {}", skip.from, skip.to); };
  std::vector<std::string> known;
  for (const schedule::Skip& one : needed) known.push_back(text_of(one));
  if (const auto skip = missing_in(own.skips, needed); skip != needed.end()) {
    const nn::Skip& units = links.skips().names()[links.skips_between(skip->from, skip->to).front()];
    throw refused_by_pipeline("the schedule does not have a skip connection of the model",
                              fmt::format("unit {} in stage {} gives unit {} in stage {} a tensor", units.from,
                                          skip->from, units.to, skip->to),
                              fmt::format("a schedule with {}", fmt::join(known, ", ")),
                              "give the schedule these lines (schedule::Schedule::skips)");
  }
  if (const auto skip = missing_in(needed, own.skips); skip != own.skips.end()) {
    throw refused_by_pipeline(
        "the schedule has a skip connection that the model does not have", text_of(*skip),
        known.empty() ? "no skip connections over a stage" : fmt::to_string(fmt::join(known, ", ")),
        "remove it, or declare which units it connects (PipelineOptions::skips)");
  }
}

std::string text_of(const Action& action) {
  const char* const what = action.kind == schedule::Kind::kForward ? "forward"
                           : is_compute(action.kind)               ? "backward"
                           : is_send(action.kind)                  ? "send"
                                                                   : "receive";
  return fmt::format("{} ({} of stage {}, micro-batch {})", to_text(action), what, action.stage, action.micro_batch);
}

}  // namespace

Pipeline::State::State(torch::nn::Module& model, mesh::Mesh its_mesh, PipelineOptions its_options)
    : mesh(std::move(its_mesh)), options(std::move(its_options)) {
  if (!mesh.has(options.axis)) {
    throw refused_by_pipeline("the mesh has no axis " + options.axis, mesh.to_text(), "an axis of this name",
                              "name the axis of the pipeline in the mesh");
  }
  ranks = mesh.along(options.axis);
  const int size = ranks.size();
  if (options.units.empty()) {
    throw refused_by_pipeline("the model has no units", "no units, and no function units()",
                              "the units that its forward calls", "give PipelineOptions::units (reigen/nn/unit.h)");
  }
  if (options.own && options.own->ranks != size) {
    throw refused_by_pipeline(
        "the schedule is for another number of ranks", fmt::format("{} ranks", options.own->ranks),
        fmt::format("{}, the size of the axis {}", size, options.axis), "change the schedule or the mesh");
  }
  if (options.own) {
    refuse_gathers(*options.own);
    schedule_of(options.own->micro_batches);
  }
  const std::vector<std::size_t> first_units = cut_units(options, static_cast<int>(placement().size()));
  check_equal_on_all_ranks(describe_pipeline(options, first_units), mesh.world(), "pipeline", "options differ");
  check_equal_on_all_ranks(describe_model(model), ranks, "pipeline", "the model differs");
  stages.emplace(model, options.units, first_units, placement(), ranks.rank());
  links.emplace(*stages, nn::SkipConnections(options.units, options.skips));
  if (options.own) check_skips(*options.own, *links);
  for (int coordinate = 0; coordinate < size; ++coordinate) {
    if (stages->trains(coordinate)) continue;
    throw refused_by_pipeline(
        "a rank's stages have nothing to train", fmt::format("coordinate {} of axis {}", coordinate, options.axis),
        "a trainable parameter for each rank", "choose first_units, or fewer ranks along the axis");
  }
  tie();
  attach();
  stages->free_others(model);
}

// Makes a group for the ranks of each tied weight. The copies begin with the values of the first stage, as all ranks
// begin with those of rank 0 in data_parallel().
void Pipeline::State::tie() {
  const at::NoGradGuard no_grad;
  const tensor::Uncaught whole(tensor::Where::kUse);  // the weights may be divided (parallelize())
  const auto parameters = stages->module()->named_parameters();
  for (const auto& [coordinates, specs] : stages->tied()) {
    const bool is_here = std::find(coordinates.begin(), coordinates.end(), ranks.rank()) != coordinates.end();
    const std::optional<Communicator> group = ranks.split(is_here ? 0 : -1);
    if (!group) continue;
    Tied one{.ranks = *group, .parameters = {}};
    for (const layout::TensorSpec& spec : specs) {
      const at::Tensor& parameter = parameters[spec.name];
      const auto first = std::find(coordinates.begin(), coordinates.end(), spec.stage) - coordinates.begin();
      if (!nn::has_no_memory(parameter)) tensor::broadcast_(parameter.detach(), static_cast<int>(first), *group);
      if (spec.trainable) one.parameters.push_back(parameter);
    }
    if (!one.parameters.empty()) tied.push_back(std::move(one));
  }
}

void Pipeline::State::attach() {
  for (std::size_t i = 0; i < stages->units().size(); ++i) {
    stages->units()[i].attach(nn::Layer::kStage, [this, i](const nn::Carry& input, const nn::Unit::Forward& inner) {
      const nn::Unit& unit = stages->units()[i];
      if (!last_stage) {
        REIGEN_CHECK(stages->holds(stages->stage_of(i)),
                     "[pipeline] unit {} belongs to another rank\n  got: a forward of the whole model   expected: "
                     "Pipeline::step() or evaluate()",
                     unit.name());
        return inner(input);
      }
      return last_stage->call(unit, i, input, inner);
    });
  }
}

const schedule::Schedule& Pipeline::State::schedule_of(int micro_batches) {
  const auto found = schedules.find(micro_batches);
  if (found != schedules.end()) return found->second;
  schedule::Schedule made;
  if (options.own) {
    if (options.own->micro_batches != micro_batches) {
      throw refused_by_pipeline("the schedule is for another number of micro-batches",
                                fmt::format("a step of {}", micro_batches),
                                fmt::format("{}, as the schedule has", options.own->micro_batches),
                                "divide the batch into as many micro-batches");
    }
    made = schedule::with_messages(*options.own);
    schedule::validate(made);
  } else {
    made = generated(micro_batches);
    made.skips = links->scheduled();
    made = add_messages(made);
  }
  return schedules.emplace(micro_batches, std::move(made)).first->second;
}

schedule::Schedule Pipeline::State::generated(int micro_batches) const {
  return schedule::generate(
      options.schedule,
      {.ranks = ranks.size(), .micro_batches = micro_batches, .virtual_stages = options.virtual_stages});
}

std::vector<int> Pipeline::State::placement() const {
  return options.own ? options.own->placement : generated(1).placement;
}

// Each rank runs the forwards in the order of micro-batches, and of its stages. With this order on all ranks no rank
// waits for ever, with any placement of the stages. The messages are those of a schedule that also has backwards.
schedule::Schedule Pipeline::State::forwards(int micro_batches) const {
  schedule::Schedule made{
      .ranks = ranks.size(), .micro_batches = micro_batches, .placement = placement(), .skips = links->scheduled()};
  made.actions.resize(static_cast<std::size_t>(made.ranks));
  const auto add = [&](schedule::Kind kind, int stage, int micro_batch) {
    const int rank = made.placement[static_cast<std::size_t>(stage)];
    made.actions[static_cast<std::size_t>(rank)].push_back({kind, stage, micro_batch, schedule::kNone});
  };
  for (int m = 0; m < micro_batches; ++m) {
    for (int stage = 0; stage < made.stages(); ++stage) add(schedule::Kind::kForward, stage, m);
  }
  if (micro_batches < 1) return made;
  for (int m = 0; m < micro_batches; ++m) {
    for (int stage = made.stages() - 1; stage >= 0; --stage) add(schedule::Kind::kBackward, stage, m);
  }
  made = add_messages(made);
  for (std::vector<Action>& list : made.actions) {
    std::erase_if(list, [](const Action& action) {
      return action.kind == schedule::Kind::kBackward || action.kind == schedule::Kind::kSendBackward ||
             action.kind == schedule::Kind::kReceiveBackward;
    });
  }
  return made;
}

at::Device Pipeline::State::device() const {
  const std::vector<at::Tensor> parameters = stages->module()->parameters();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
}

// Errors of the group have ended it already. Every other error ends it here, so that no rank waits for this one.
void Pipeline::State::run(const schedule::Schedule& schedule, const PipelineStep& what,
                          const std::function<void(StepRun&)>& body) {
  using std::chrono::system_clock;
  const std::chrono::nanoseconds began = system_clock::now().time_since_epoch();
  std::optional<Messages> messages(std::in_place, ranks, schedule.micro_batches, device());
  StepRun step(*stages, *links, schedule, ranks.rank(), what, *messages, last_stage, report);
  const auto end = [&](const char* why) {
    const std::string cause =
        fmt::format("[pipeline] rank {} failed in {}: {}", mesh.world().rank(), text_of(step.now()), why);
    base::log_warning("{}", cause);
    mesh.world().abort(cause);
  };
  try {
    body(step);
  } catch (const Aborted&) {
    throw;
  } catch (const PeerLost&) {
    throw;
  } catch (const std::exception& error) {
    end(error.what());
    throw;
  } catch (...) {
    end("an exception that is no std::exception");
    throw;
  }
  report.began = began.count();
  report.bytes_sent = messages->bytes_sent();
}

bool Pipeline::State::splits_backward() {
  const schedule::Schedule& schedule = schedule_of(options.own ? options.own->micro_batches : 1);
  for (const std::vector<Action>& list : schedule.actions) {
    for (const Action& action : list) {
      if (action.kind == schedule::Kind::kBackwardWeight) return true;
    }
  }
  return false;
}

void Pipeline::State::sum_tied_gradients() const {
  for (const Tied& one : tied) {
    std::vector<at::Tensor> gradients;
    for (at::Tensor parameter : one.parameters) {
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
      gradients.push_back(parameter.grad());
    }
    tensor::grouped_all_reduce_(gradients, one.ranks);
  }
}

Pipeline::Pipeline(std::shared_ptr<State> state) : state_(std::move(state)) {}
const mesh::Mesh& Pipeline::mesh() const { return state_->mesh; }
const std::string& Pipeline::axis() const { return state_->options.axis; }
const Communicator& Pipeline::ranks() const { return state_->ranks; }
torch::nn::Module& Pipeline::module() const { return *state_->stages->module(); }
const std::vector<nn::Unit>& Pipeline::units() const { return state_->stages->units(); }
const std::vector<std::size_t>& Pipeline::first_units() const { return state_->stages->first_units(); }
bool Pipeline::has_first_stage() const { return state_->stages->holds(0); }
bool Pipeline::has_last_stage() const { return state_->stages->holds(state_->stages->count() - 1); }
const std::vector<layout::TensorSpec>& Pipeline::parameters() const { return state_->stages->parameters(); }
bool Pipeline::has_tied_weights() const { return !state_->stages->tied().empty(); }
bool Pipeline::splits_backward() const { return state_->splits_backward(); }
bool Pipeline::is_elsewhere(std::string_view name) const { return state_->stages->is_elsewhere(name); }
std::function<bool(std::string_view)> Pipeline::elsewhere() const {
  if (!state_) return {};
  return [state = state_](std::string_view name) { return state->stages->is_elsewhere(name); };
}
bool Pipeline::gives(std::string_view name) const { return state_->stages->gives(name); }
const schedule::Schedule& Pipeline::schedule_of(int micro_batches) const { return state_->schedule_of(micro_batches); }
const PipelineReport& Pipeline::last() const { return state_->report; }

// Gradients are averaged over the data-parallel ranks in the rank's last backward, so that this communication runs
// while backward does. If stages share a weight, its gradients must be added up before, so all are averaged after the
// last backward. The second part of a backward (W) does not tell its end, so then too.
const PipelineReport& Pipeline::step(DataParallelBase& parallel, int micro_batches, const PipelineStep& what) const {
  const schedule::Schedule& schedule = schedule_of(micro_batches);
  const bool averages_at_the_end = !state_->tied.empty() || state_->splits_backward();
  state_->run(schedule, what, [&](StepRun& step) {
    for (const State::Tied& one : state_->tied) {
      for (const at::Tensor& parameter : one.parameters) {
        if (!parameter.grad().defined()) continue;
        throw refused_by_pipeline("a weight that stages share has a gradient before the step", "two steps in a row",
                                  "one step between two zero_grad()", "use more micro-batches in one step");
      }
    }
    parallel.prepare_forward();
    std::optional<NoSync> only_adds_up(parallel.no_sync());
    step.run([&] {
      if (!averages_at_the_end) only_adds_up.reset();
    });
    if (!averages_at_the_end) return;
    only_adds_up.reset();
    state_->sum_tied_gradients();
    parallel.synchronize();
  });
  return state_->report;
}

void Pipeline::evaluate(DataParallelBase& parallel, int micro_batches, const PipelineStep& what) const {
  const at::NoGradGuard no_grad;
  const schedule::Schedule forwards = state_->forwards(micro_batches);
  const PipelineReport before = state_->report;
  state_->run(forwards, what, [&](StepRun& step) {
    const NoSync no_round = parallel.no_sync();
    parallel.prepare_forward();
    step.run_forwards();
  });
  state_->report = before;
}

std::vector<double> measure_units(const std::vector<nn::Unit>& units, const nn::Carry& input, const Communicator& ranks,
                                  const std::vector<nn::Skip>& skips) {
  constexpr int kRounds = 3;  // the first warms up; of the others the faster counts
  std::vector<at::Tensor> buffers, values;
  for (const nn::Unit& unit : units) {
    for (const at::Tensor& buffer : unit.module().buffers()) {
      buffers.push_back(buffer);
      values.push_back(buffer.clone());
    }
  }
  const nn::RandomState random(input);
  const nn::SkipConnections connections(units, skips);
  std::vector<double> seconds(units.size());
  for (int round = 0; round < kRounds; ++round) {
    nn::Between between = connections.begin(input);
    for (std::size_t i = 0; i < units.size(); ++i) {
      nn::Carry next = connections.take_input(i, between);
      for (at::Tensor& tensor : next) {
        tensor = tensor.detach();
        if (tensor.is_floating_point()) tensor.requires_grad_(true);
      }
      const auto begin = std::chrono::steady_clock::now();
      nn::Carry output = nn::call(units[i], next);
      nn::Carry ends;
      for (const at::Tensor& tensor : output) {
        if (tensor.requires_grad()) ends.push_back(tensor.sum());
      }
      if (!ends.empty()) torch::autograd::backward(ends, {});
      if (!output.empty() && output.front().is_cuda()) tensor::finish_stream_of(output.front());
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (round > 0) seconds[i] = round == 1 ? taken.count() : std::min(seconds[i], taken.count());
      connections.put_output(i, std::move(output), between);
    }
  }
  for (const nn::Unit& unit : units) {
    for (at::Tensor parameter : unit.parameters()) parameter.mutable_grad() = at::Tensor();
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(values[i]);
  random.apply();
  if (ranks.size() > 1) {
    ranks.all_reduce(seconds.data(), seconds.data(), seconds.size(), DataType::kFloat64, ReduceOp::kAvg,
                     {.tag = "times of units"});
  }
  return seconds;
}

schedule::Replay Pipeline::gather_last() const {
  const std::vector<schedule::Span>& spans = state_->report.spans;
  const Communicator& ranks = state_->ranks;
  constexpr std::size_t kNumbers = 6;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()));
  const auto own = static_cast<std::int64_t>(spans.size() * kNumbers);
  ranks.all_gather(&own, counts.data(), 1, DataType::kInt64, {.tag = "pipeline: spans"});
  std::vector<double> numbers;
  for (const auto& [action, start, end] : spans) {
    numbers.insert(numbers.end(),
                   {static_cast<double>(static_cast<int>(action.kind)), static_cast<double>(action.stage),
                    static_cast<double>(action.micro_batch), static_cast<double>(action.peer), start, end});
  }
  const std::vector<std::size_t> sizes(counts.begin(), counts.end());
  std::vector<double> all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  ranks.all_gather_v(numbers.data(), all.data(), sizes, DataType::kFloat64, {.tag = "pipeline: spans"});
  std::vector<std::int64_t> begins(sizes.size());
  ranks.all_gather(&state_->report.began, begins.data(), 1, DataType::kInt64, {.tag = "pipeline: begins"});
  std::vector<int> most(state_->report.in_flight.by_stage);
  most.insert(most.end(), state_->report.in_flight.by_rank.begin(), state_->report.in_flight.by_rank.end());
  std::vector<std::int32_t> in_flight(most.begin(), most.end());
  ranks.all_reduce(in_flight.data(), in_flight.data(), in_flight.size(), DataType::kInt32, ReduceOp::kMax,
                   {.tag = "pipeline: in flight"});
  schedule::Replay result;
  const std::size_t stages = state_->report.in_flight.by_stage.size();
  result.in_flight.by_stage.assign(in_flight.begin(), in_flight.begin() + static_cast<std::ptrdiff_t>(stages));
  result.in_flight.by_rank.assign(in_flight.begin() + static_cast<std::ptrdiff_t>(stages), in_flight.end());
  const std::int64_t first = *std::min_element(begins.begin(), begins.end());
  const double* next = all.data();
  std::vector<double> busy;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const double offset = static_cast<double>(begins[rank] - first) * 1e-9;
    std::vector<schedule::Span>& of_rank = result.ranks.emplace_back();
    double& sum = busy.emplace_back(0);
    for (std::size_t i = 0; i < sizes[rank]; i += kNumbers, next += kNumbers) {
      const auto number = [&](std::size_t at) { return static_cast<int>(next[at]); };
      const Action action{static_cast<schedule::Kind>(number(0)), number(1), number(2), number(3)};
      of_rank.push_back({action, next[4] + offset, next[5] + offset});
      result.total = std::max(result.total, next[5] + offset);
      if (is_compute(action.kind)) sum += next[5] - next[4];
    }
  }
  double idle = 0;
  for (const double sum : busy) {
    result.idle.push_back(result.total - sum);
    idle += result.idle.back();
  }
  if (result.total > 0) result.bubble = idle / (static_cast<double>(busy.size()) * result.total);
  return result;
}

Pipeline make_pipeline(torch::nn::Module& model, const mesh::Mesh& mesh, PipelineOptions options) {
  return Pipeline(std::make_shared<Pipeline::State>(model, mesh, std::move(options)));
}

}  // namespace reigen::parallel
