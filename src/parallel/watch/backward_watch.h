// Tells what backward does: which gradient is complete, and when backward has ended. It knows no bucket and no rank.
//
// A round is what becomes one mean over the ranks: usually one backward, or several that only add up. It begins with
// begin() and ends with end_round(). Two hooks on each parameter tell of its gradient; a callback of the engine tells
// of the end. A backward that throws calls nobody back: it is dead, and so is its round.
//
// A backward may run inside another one of which tensor::inner_backward() knows nothing. The engine calls back at the
// end of the inner one, when gradients of the outer one are still to come. Such an end does not count while gradients
// are missing (`nested_`): the outer one calls back too, when it gives a gradient itself.
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
  // Who listens outlives the watch. What a hook calls must not wait for another rank: other ranks may wait for this one
  // further on in the same backward. An error that is thrown ends the backward.
  struct Listener {
    std::function<void(std::size_t parameter)> before_gradient = {};  // its gradient is about to be added to .grad
    std::function<void(std::size_t parameter)> on_gradient;           // .grad is complete
    std::function<void()> on_end;                                     // of backward, no hook: it may wait
  };

  explicit BackwardWatch(std::vector<at::Tensor> parameters);
  ~BackwardWatch();
  BackwardWatch(const BackwardWatch&) = delete;  // hooks point to one
  BackwardWatch& operator=(const BackwardWatch&) = delete;

  // Installs the hooks. A hook that a user installed after accumulation stays and is called first.
  void attach(Listener listener);
  // Whether a watch that lives has hooks on this parameter.
  static bool is_watched(const at::Tensor& parameter);

  // ---- A round

  void begin() { is_active_ = true; }
  bool is_active() const { return is_active_; }
  // Asks to be told of the end of the backward that runs now.
  void await_end();
  // This parameter's gradient is complete in this round. Returns false where it was before.
  bool note(std::size_t parameter);
  // The round's backward threw, and no other backward of the round runs or has ended.
  bool is_dead() const;
  // A backward inside another one ended it, and no other did.
  bool ended_inside_another() const { return is_active_ && nested_; }
  // The first parameter without a gradient in this round; none: all have one.
  std::optional<std::size_t> missing() const;
  void end_round();

 private:
  void on_backward_end();

  std::vector<at::Tensor> parameters_;
  Listener listener_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
  bool is_active_ = false;
  bool nested_ = false;
  std::vector<char> ready_;                    // parameters, in this round
  std::vector<std::weak_ptr<int>> backwards_;  // ids of those that will call back; dead ones threw
};

}  // namespace reigen::parallel
