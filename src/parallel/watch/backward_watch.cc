#include "parallel/watch/backward_watch.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/no_waiting.h"
#include "reigen/base/error.h"
#include "tensor/backward_end.h"
#include "tensor/hooks/spare_blocks.h"
#include "tensor/hooks/thread_engine.h"

namespace reigen::parallel {
namespace {

// A tensor can have only one post-accumulate hook. If the user has installed one before, this hook keeps it and calls
// it first.
class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  using Call = std::function<void()>;

  GradientHook(std::weak_ptr<const void> watch, Call call,
               std::unique_ptr<torch::autograd::PostAccumulateGradHook> users)
      : watch_(std::move(watch)), call_(std::move(call)), users_(std::move(users)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (users_) (*users_)(parameter);
    if (const auto keeps_alive = watch_.lock()) call_();
  }

  bool is_attached() const { return !watch_.expired(); }
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> take_users() { return std::move(users_); }

 private:
  std::weak_ptr<const void> watch_;
  Call call_;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> users_;
};

GradientHook* hook_of(const at::Tensor& parameter) {
  return dynamic_cast<GradientHook*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

}  // namespace

BackwardWatch::BackwardWatch(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)),
      needs_own_engine_(!parameters_.empty() && parameters_.front().is_cuda() && tensor::has_own_engine()),
      ready_(parameters_.size()) {}

BackwardWatch::~BackwardWatch() {
  for (const auto& [parameter, hook] : hooks_) parameter.remove_hook(hook);
  for (const at::Tensor& parameter : parameters_) {
    GradientHook* const hook = hook_of(parameter);
    if (hook != nullptr && !hook->is_attached()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->take_users());
    }
  }
}

void BackwardWatch::attach(Listener listener) {
  listener_ = std::move(listener);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> users;
    // Without a hook, `present` refers to one empty pointer that all tensors and threads share, so it is not moved
    // from.
    auto& present = torch::autograd::impl::post_acc_grad_hooks(parameter);
    if (GradientHook* const stale = hook_of(parameter)) {
      users = stale->take_users();
    } else if (present) {
      users = std::move(present);
    }
    const auto call = [this, i] {
      const base::NoWaiting in_hook("a hook of a gradient");
      listener_.on_gradient(i);
    };
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<GradientHook>(weak_from_this(), call, std::move(users)));
    if (const auto hook = tensor::note_arrivals(parameter)) hooks_.emplace_back(parameter, *hook);
    if (!listener_.before_gradient) continue;
    const auto before = [weak = weak_from_this(), i](const at::Tensor&) {
      const base::NoWaiting in_hook("a hook of a gradient");
      if (const auto watch = weak.lock()) watch->listener_.before_gradient(i);
    };
    hooks_.emplace_back(parameter, parameter.register_hook(before));
  }
}

bool BackwardWatch::is_watched(const at::Tensor& parameter) {
  const GradientHook* const hook = hook_of(parameter);
  return hook != nullptr && hook->is_attached();
}

void BackwardWatch::begin() {
  if (needs_own_engine_ && !tensor::has_own_engine()) {
    throw InvalidArgument(Report{
        .what = "[data_parallel] ranks are threads with one GPU, and this backward runs on a thread of all ranks",
        .got = "backward() called from a thread that has not called data_parallel()",
        .expected = "backward() on the thread that called separate_gpu_work() and data_parallel()",
        .fix = "make model and backward on one thread, or start the ranks as processes: reigen run -n N"});
  }
  is_active_ = true;
}

// The engine's graph task of a backward owns the callbacks of this backward. When an exception ends the backward early,
// the callback is destroyed with the graph task, and the id in backwards_ expires.
void BackwardWatch::await_end() {
  const int id = torch::autograd::get_current_graph_task_id();
  for (const auto& one : backwards_) {
    const auto other = one.lock();
    if (other && *other == id) return;
  }
  auto owned = std::make_shared<int>(id);
  backwards_.push_back(owned);
  // A backward can run another one inside it (a recomputed unit does). LibTorch runs the callback on the caller's
  // streams only if the outer backward itself adds to .grad, and not if only inner backwards do. So the callback sets
  // the stream that is current in this hook.
  std::optional<c10::Stream> stream;
  const at::Device device = parameters_.front().device();
  if (device.is_cuda()) stream = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(device);
  tensor::at_backward_end([weak = weak_from_this(), owned = std::move(owned), stream] {
    const c10::OptionalStreamGuard guard(stream);
    if (const auto watch = weak.lock()) watch->on_backward_end();
  });
}

void BackwardWatch::on_backward_end() {
  if (!is_active_) return;
  // A node that is being evaluated now means that this backward runs inside another one.
  const bool is_inside_another = torch::autograd::get_current_node() != nullptr;
  if (is_inside_another && missing()) {
    nested_ = true;
    return;
  }
  listener_.on_end();
}

bool BackwardWatch::note(std::size_t parameter) {
  if (ready_[parameter] != 0) return false;
  ready_[parameter] = 1;
  return true;
}

bool BackwardWatch::is_dead() const {
  return is_active_ && !nested_ &&
         std::none_of(backwards_.begin(), backwards_.end(), [](const auto& one) { return !one.expired(); });
}

std::optional<std::size_t> BackwardWatch::missing() const {
  const auto found = std::find(ready_.begin(), ready_.end(), 0);
  if (found == ready_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - ready_.begin());
}

void BackwardWatch::end_round() {
  std::fill(ready_.begin(), ready_.end(), 0);
  is_active_ = false;
  nested_ = false;
  backwards_.clear();
}

}  // namespace reigen::parallel
