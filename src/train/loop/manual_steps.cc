#include "train/loop/manual_steps.h"

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "reigen/nn/stand_in.h"
#include "train/model/device.h"
#include "train/model/precision.h"

namespace reigen::train {
namespace {

class TaskSteps final : public ManualSteps {
 public:
  TaskSteps(Run& run, TrainedModel& model, NotFinite& not_finite, Callbacks& callbacks, const data::Batch& batch,
            StepTime& time, const EndPhase& end_phase)
      : run_(run),
        model_(model),
        not_finite_(not_finite),
        callbacks_(callbacks),
        batch_(batch),
        time_(time),
        end_phase_(end_phase) {}

  std::int64_t done() const override { return run_.done; }

  // Autocast is for forwards only. It keeps weights in 16 bits, which a step makes stale.
  void backward(const at::Tensor& loss, bool keep_graph) override {
    autocast_.reset();
    time_.forward += end_phase_(Phase::kForward);
    const double weight = batch_.parts.front().weight;
    (weight == 1 ? loss : loss * weight).backward({}, keep_graph);
    const double exposed = model_.parallel().last_exposed_communication().count();
    time_.exposed += run_.world.size() > 1 ? exposed : 0;
    time_.backward += end_phase_(Phase::kBackward) - (run_.world.size() > 1 ? exposed : 0);
    callbacks_.after_backward();
    begin_forward();
  }

  void step(std::string_view optimizer) override {
    Optimization& one = model_.optimizers().named(optimizer);
    autocast_.reset();
    time_.forward += end_phase_(Phase::kForward);
    const double met = model_.seconds_met();
    model_.optimizers().set_due(one);
    Optimization::Gradients gradients = one.look();
    time_.optimizer += end_phase_(Phase::kGradients);
    if (gradients.finite) {
      callbacks_.before_optimizer();
      gradients = one.step(run_.done, gradients);
    }
    if (!gradients.finite) not_finite_.meet_in_manual_step(std::string(optimizer), gradients, one.lr(), batch_);
    model_.parallel().after_step();
    model_.parallel().prepare_forward();
    rates_["lr/" + std::string(optimizer)] = one.lr();
    sum_of_squares_ += std::pow(gradients.norm.value_or(NAN), 2);
    const double meetings = model_.seconds_met() - met;
    time_.exposed += meetings;
    time_.optimizer += end_phase_(Phase::kOptimizer) - meetings;
    begin_forward();
  }

  double mean(const at::Tensor& loss) override {
    const std::int64_t terms = batch_.parts.front().terms;
    OwnLoss own(run_.device);
    own.add(loss.detach(), terms);
    double sum = own.value();
    run_.world.all_reduce(&sum, &sum, 1, DataType::kFloat64, ReduceOp::kSum, {.tag = "mean of a loss"});
    return run_.mean_of(sum, batch_.global_terms);
  }

  void zero_grad(std::string_view optimizer) override { model_.optimizers().named(optimizer).leave_out(); }

  void begin_forward() { autocast_ = compute_type(run_.config.train.precision, run_.device); }
  void end() { autocast_.reset(); }

  NamedValues rates() const { return {rates_.begin(), rates_.end()}; }
  std::optional<double> grad_norm() const {
    return std::isfinite(sum_of_squares_) ? std::optional(std::sqrt(sum_of_squares_)) : std::nullopt;
  }

 private:
  Run& run_;
  TrainedModel& model_;
  NotFinite& not_finite_;
  Callbacks& callbacks_;
  const data::Batch& batch_;
  StepTime& time_;
  const EndPhase& end_phase_;
  double sum_of_squares_ = 0;
  std::map<std::string, double> rates_;
  std::unique_ptr<nn::Autocast> autocast_;
};

}  // namespace

ManualStep make_manual_step(Run& run, TrainedModel& model, NotFinite& not_finite, Callbacks& callbacks,
                            const data::Batch& batch, StepTime& time, const EndPhase& end_phase) {
  const data::MicroBatch& part = batch.parts.front();  // the only one: train.micro_batch is refused
  TaskSteps steps(run, model, not_finite, callbacks, batch, time, end_phase);
  model.parallel().prepare_forward();
  ManualStep result{.loss = OwnLoss(run.device)};
  {
    std::optional<nn::StandIn> stand_in;
    if (part.count == 0) stand_in.emplace();
    run.metrics.begin_batch(part.terms);
    steps.begin_forward();
    result.loss.add(run.manual->manual_step(samples_on(run.device, part), steps).detach(), part.terms);
    steps.end();
  }
  model.optimizers().leave_out();
  model.optimizers().update_average();
  time.forward += end_phase(Phase::kForward);
  result.grad_norm = steps.grad_norm();
  result.rates = steps.rates();
  return result;
}

}  // namespace reigen::train
