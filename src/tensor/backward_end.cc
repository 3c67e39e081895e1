#include "tensor/backward_end.h"

#include <torch/csrc/autograd/engine.h>

#include <utility>
#include <vector>

namespace reigen::tensor {

namespace {

using Calls = std::vector<std::function<void()>>;

// The functions that at_backward_end() has got during this thread's outermost inner_backward(). The pointer is null
// when no inner_backward() runs. One variable for each thread is enough, because the engine runs an inner backward on
// the thread that starts it.
thread_local Calls* waiting = nullptr;

void queue(std::function<void()> call) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(call));
}

class Collects {
 public:
  explicit Collects(Calls& calls) { waiting = &calls; }
  ~Collects() { waiting = nullptr; }
  Collects(const Collects&) = delete;  // an object belongs to one scope
  Collects& operator=(const Collects&) = delete;
};

}  // namespace

void at_backward_end(std::function<void()> call) {
  if (waiting != nullptr) {
    waiting->push_back(std::move(call));
  } else {
    queue(std::move(call));
  }
}

void inner_backward(const std::function<void()>& backward) {
  if (waiting != nullptr) return backward();
  Calls calls;
  {
    const Collects collects(calls);
    backward();
  }
  for (auto& call : calls) queue(std::move(call));
}

}  // namespace reigen::tensor
