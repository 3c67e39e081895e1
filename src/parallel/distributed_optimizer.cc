#include "reigen/parallel/distributed_optimizer.h"

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <unordered_set>
#include <utility>

#include "parallel/exchange/predivided.h"
#include "parallel/gradient_reducer.h"
#include "reigen/base/error.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/collectives.h"

namespace reigen::parallel {

struct DistributedOptimizerState {
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  Communicator world;
  std::shared_ptr<GradientReducer> reducer;
  DataParallelBase parallel;
  bool synchronized = false;  // synchronize() was called since the last step
  int skips = 0;              // number of SkipSynchronize objects that live

  void start_over() {
    reducer->start_over();
    synchronized = false;
  }
};

namespace {

std::shared_ptr<GradientReducer> make_reducer(torch::nn::Module& module, const Communicator& world,
                                              const DistributedOptimizerOptions& options) {
  auto reducer = std::make_shared<GradientReducer>(
      module, world,
      DataParallelOptions{
          .bucket_mb = options.bucket_mb,
          .overlap = options.overlap,
          .strategy = predivided(options.strategy ? options.strategy : plain(), options.gradient_predivide_factor),
          .buffers = BufferPolicy::kOwn,
          .backwards_per_reduction = options.backward_passes_per_step,
          .compare_weights = options.compare_weights,
          .share_cores = options.share_cores});
  reducer->guard_steps();
  return reducer;
}

void check_parameters(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  std::unordered_set<const at::TensorImpl*> trained;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) trained.insert(parameter.unsafeGetTensorImpl());
  }
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& parameters = optimizer.param_groups()[group].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].requires_grad() || trained.count(parameters[i].unsafeGetTensorImpl()) != 0) continue;
      throw InvalidArgument(
          Report{.what = "[distributed_optimizer] the optimizer has a parameter that the model does not train",
                 .got = fmt::format("parameter {} of group {}", i, group),
                 .expected = "parameters of the model, whose gradients are averaged",
                 .fix = "make the optimizer of model->parameters(), and register what it trains in the model"});
    }
  }
}

void refuse_zero_grad() {
  throw InvalidArgument(Report{.what = "[distributed_optimizer] zero_grad() between backward and step()",
                               .got = "gradients that were averaged, or add up for it",
                               .expected = "zero_grad() before backward, or behind step() or synchronize()",
                               .fix = "move zero_grad() in front of the first backward of a step"});
}

void refuse_skip(const char* got, const char* fix) {
  throw InvalidArgument(Report{.what = "[distributed_optimizer] this step() cannot skip synchronize()",
                               .got = got,
                               .expected = "synchronize(), then step() within the scope",
                               .fix = fix});
}

}  // namespace

SkipSynchronize::SkipSynchronize(std::shared_ptr<DistributedOptimizerState> state) : state_(std::move(state)) {
  ++state_->skips;
}

SkipSynchronize::~SkipSynchronize() {
  if (state_) --state_->skips;
}

DistributedOptimizerBase::DistributedOptimizerBase(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                                   torch::nn::Module& module, Communicator world,
                                                   const DistributedOptimizerOptions& options) {
  auto reducer = make_reducer(module, world, options);
  check_parameters(*optimizer, module);
  DataParallelBase parallel(reducer);
  state_ = std::make_shared<DistributedOptimizerState>(DistributedOptimizerState{.optimizer = std::move(optimizer),
                                                                                 .world = std::move(world),
                                                                                 .reducer = std::move(reducer),
                                                                                 .parallel = parallel});
  state_->reducer->prepare_forward();
}

void DistributedOptimizerBase::synchronize() {
  if (state_->synchronized) return;
  if (!state_->reducer->is_averaged()) state_->reducer->synchronize();
  state_->synchronized = true;
}

void DistributedOptimizerBase::step() {
  if (state_->skips == 0) {
    synchronize();
  } else if (!state_->synchronized) {
    refuse_skip("no synchronize() since the last step()", "call synchronize() before what looks at gradients");
  }
  state_->optimizer->step();
  end_step();
}

at::Tensor DistributedOptimizerBase::step(const Closure& closure) {
  if (state_->skips > 0) refuse_skip("step() with a closure", "clip within the closure, behind synchronize()");
  if (state_->reducer->ranks_differ()) {
    throw InvalidArgument(Report{.what = "[DistributedOptimizer] a step with a closure needs averaged gradients",
                                 .got = "a strategy whose ranks step with gradients of their own",
                                 .expected = "a strategy of gradients: ranks must decide alike how often to evaluate",
                                 .fix = "use step() without a closure, or another strategy"});
  }
  const auto evaluate = [&]() -> at::Tensor {
    state_->start_over();
    const at::Tensor loss = closure();
    synchronize();
    return loss.defined() ? tensor::all_reduce(loss.detach(), state_->world, {.op = ReduceOp::kAvg}) : loss;
  };
  at::Tensor loss = state_->optimizer->step(evaluate);
  end_step();
  return loss;
}

// prepare_forward() must run before each forward; it throws if the model has changed. The program calls the model
// itself, and not prepare_forward(), so each step ends with this call.
void DistributedOptimizerBase::end_step() {
  state_->reducer->after_step();
  state_->start_over();
  state_->reducer->prepare_forward();
}

void DistributedOptimizerBase::zero_grad(bool set_to_none) {
  GradientReducer& reducer = *state_->reducer;
  if (reducer.has_unfinished_backward()) {
    state_->start_over();
  } else if (!state_->synchronized && (reducer.is_averaged() || reducer.accumulated() > 0)) {
    refuse_zero_grad();
  } else if (state_->synchronized) {
    state_->start_over();  // zero_grad() after synchronize(): the caller leaves out the step
  }
  state_->optimizer->zero_grad(set_to_none);
}

SkipSynchronize DistributedOptimizerBase::skip_synchronize() { return SkipSynchronize(state_); }

DataParallelBase& DistributedOptimizerBase::parallel() { return state_->parallel; }

}  // namespace reigen::parallel
