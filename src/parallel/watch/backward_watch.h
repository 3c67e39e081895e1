// Tells a listener which gradients are complete, and when backward has ended. The watch does not depend on buckets or
// ranks.
//
// Usually a round is one backward. It begins with begin() and ends with end_round(). Hooks on each parameter report its
// gradient. A callback of the autograd engine reports the end of backward. If a backward throws, the engine never runs
// this callback. The round is then dead.
//
// A backward may run inside another backward without tensor::inner_backward(). The engine then runs the callback at the
// end of the inner backward, when gradients of the outer backward are still to come. Such an end does not count while
// gradients are missing (`nested_`). If the outer backward itself produces a gradient, the engine runs a callback at
// its end too.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace reigen::parallel {

class BackwardWatch : public std::enable_shared_from_this<BackwardWatch> {
 public:
  // Objects that the listener's functions use must outlive the watch. Functions that hooks call must not wait for
  // another rank, because other ranks may wait for this rank at a later point of the same backward. An exception that
  // such a function throws ends the backward.
  struct Listener {
    std::function<void(std::size_t parameter)> before_gradient = {};  // its gradient is about to be added to .grad
    std::function<void(std::size_t parameter)> on_gradient;           // .grad is complete
    std::function<void()> on_end;                                     // backward has ended; may wait, unlike hooks
  };

  explicit BackwardWatch(std::vector<at::Tensor> parameters);
  ~BackwardWatch();
  BackwardWatch(const BackwardWatch&) = delete;  // hooks point to this object
  BackwardWatch& operator=(const BackwardWatch&) = delete;

  // Installs the hooks. If the user has installed a post-accumulate hook before, it is kept and called first.
  void attach(Listener listener);
  // Whether a live watch has hooks on this parameter.
  static bool is_watched(const at::Tensor& parameter);

  // ---- A round

  // Throws InvalidArgument if the thread that made the watch has separated its GPU work (reigen/tensor/gpu_work.h), and
  // this backward was called from another thread: it could block the backward of another rank.
  void begin();
  bool is_active() const { return is_active_; }
  // Makes the watch call on_end at the end of the backward that runs now.
  void await_end();
  // Notes that this parameter's gradient is complete in this round. Returns false if it was noted before.
  bool note(std::size_t parameter);
  // Whether the round's backward threw, and no other backward of the round runs or has ended.
  bool is_dead() const;
  // Whether only a backward inside another one has ended in this round.
  bool ended_inside_another() const { return is_active_ && nested_; }
  // The first parameter without a gradient in this round, or nullopt if all have one.
  std::optional<std::size_t> missing() const;
  void end_round();

 private:
  void on_backward_end();

  std::vector<at::Tensor> parameters_;
  const bool needs_own_engine_;  // the parameters are on a GPU, and the thread has an autograd engine of its own
  Listener listener_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  bool is_active_ = false;
  bool nested_ = false;
  std::vector<char> ready_;                    // by parameter: its gradient is complete in this round
  std::vector<std::weak_ptr<int>> backwards_;  // ids of backwards; an id expires when its backward has ended or thrown
};

}  // namespace reigen::parallel
