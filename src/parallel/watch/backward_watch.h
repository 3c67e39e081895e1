// Tells a listener which gradients are complete, and when backward has ended. It knows nothing of buckets or ranks.
//
// A round produces one mean over the ranks, usually of the gradients of one backward, or of several backwards that only
// add up. It begins with begin() and ends with end_round(). Two hooks on each parameter report its gradient. A callback
// of the autograd engine reports the end of backward. A backward that throws never runs this callback: the backward is
// dead, and so is its round.
//
// A backward may run inside another one without tensor::inner_backward(). The engine then runs the callback at the end
// of the inner backward, when gradients of the outer one are still to come. Such an end does not count while gradients
// are missing (`nested_`). The outer backward runs a callback too, if it produces a gradient itself.
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
  // The listener outlives the watch. Functions that hooks call must not wait for another rank, because other ranks may
  // wait for this rank at a later point of the same backward. An exception that such a function throws ends the
  // backward.
  struct Listener {
    std::function<void(std::size_t parameter)> before_gradient = {};  // its gradient is about to be added to .grad
    std::function<void(std::size_t parameter)> on_gradient;           // .grad is complete
    std::function<void()> on_end;                                     // backward has ended; may wait, unlike hooks
  };

  explicit BackwardWatch(std::vector<at::Tensor> parameters);
  ~BackwardWatch();
  BackwardWatch(const BackwardWatch&) = delete;  // hooks point to one watch
  BackwardWatch& operator=(const BackwardWatch&) = delete;

  // Installs the hooks. A post-accumulate hook that a user has installed before is kept and called first.
  void attach(Listener listener);
  // Whether a live watch has hooks on this parameter.
  static bool is_watched(const at::Tensor& parameter);

  // ---- A round

  void begin() { is_active_ = true; }
  bool is_active() const { return is_active_; }
  // Makes the watch call on_end at the end of the backward that runs now.
  void await_end();
  // Notes that this parameter's gradient is complete in this round. Returns false if it was noted before.
  bool note(std::size_t parameter);
  // Whether the round's backward threw, and no other backward of the round runs or has ended.
  bool is_dead() const;
  // Whether only a backward inside another one has ended in this round.
  bool ended_inside_another() const { return is_active_ && nested_; }
  // The first parameter without a gradient in this round; nullopt: all have one.
  std::optional<std::size_t> missing() const;
  void end_round();

 private:
  void on_backward_end();

  std::vector<at::Tensor> parameters_;
  Listener listener_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  bool is_active_ = false;
  bool nested_ = false;
  std::vector<char> ready_;                    // by parameter: its gradient is complete in this round
  std::vector<std::weak_ptr<int>> backwards_;  // ids of backwards that will call back; expired: the backward threw
};

}  // namespace reigen::parallel
