#include "tensor/hooks/thread_engine.h"

#include <torch/csrc/autograd/engine.h>

#include <memory>

namespace reigen::tensor {

namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;

// LibTorch asks a function (its engine stub) which engine the calling thread uses; Python's bindings use the same stub.
// Our function answers with `engine_here`, or if it is null with the engine that was usual before. The backward threads
// of a ThreadEngine belong to it too: hooks on them may call backward() again.
thread_local Engine* engine_here = nullptr;
Engine* usual_engine = nullptr;  // set once, before the stub is

class ThreadEngine final : public Engine {
 public:
  // Newer versions of LibTorch start backward threads only for the first engine of the process, older ones for each.
  ThreadEngine() {
    initialize_device_threads_pool();
    if (device_ready_queues_.empty()) start_device_threads();
  }
  ~ThreadEngine() override { stop(); }  // ends the backward threads; LibTorch demands it of every derived class
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  void thread_init(int device, const std::shared_ptr<ReadyQueue>& queue, bool should_increment) override {
    engine_here = this;
    Engine::thread_init(device, queue, should_increment);
  }
};

void tell_libtorch() {
  [[maybe_unused]] static const bool kTold = [] {
    usual_engine = &Engine::get_default_engine();
    usual_engine->initialize_device_threads_pool();  // it must be the first engine
    torch::autograd::set_default_engine_stub(
        []() -> Engine& { return engine_here != nullptr ? *engine_here : *usual_engine; });
    return true;
  }();
}

}  // namespace

void use_own_engine() {
  if (engine_here != nullptr) return;
  tell_libtorch();
  thread_local const std::unique_ptr<ThreadEngine> own = std::make_unique<ThreadEngine>();
  engine_here = own.get();
}

bool has_own_engine() { return engine_here != nullptr; }

}  // namespace reigen::tensor
