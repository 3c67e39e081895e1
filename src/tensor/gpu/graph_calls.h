// The functions of the plug-in libreigen_torch_cuda.so, which uses LibTorch's CUDA graphs (cuda/torch_graph.cc).
// Thread rule: any thread; each graph is used by one thread at a time.
#pragma once

namespace reigen::tensor {

// This number changes with every change of a function here.
inline constexpr int kGraphPluginVersion = 1;

// The functions may throw c10::Error. They use the current device and LibTorch's current stream on it.
struct GraphCalls {
  void* (*make)();
  void (*begin)(void* graph);   // from now on work of the stream is captured and not run
  void (*end)(void* graph);     // throws if something happened that a capture forbids
  void (*replay)(void* graph);  // puts the captured work on the stream
  void (*destroy)(void* graph);
};

// The first call opens the plug-in, after LibTorch's part for GPUs. It throws a BackendError with exit code 69 if one
// of them is missing, or if the plug-in belongs to another version of Reigen; a later call tries again. Tests link
// their own version of graph_calls().
const GraphCalls& graph_calls();

}  // namespace reigen::tensor

extern "C" {
[[gnu::visibility("default")]] int reigen_torch_cuda_version();
[[gnu::visibility("default")]] void* reigen_graph_make();
[[gnu::visibility("default")]] void reigen_graph_begin(void* graph);
[[gnu::visibility("default")]] void reigen_graph_end(void* graph);
[[gnu::visibility("default")]] void reigen_graph_replay(void* graph);
[[gnu::visibility("default")]] void reigen_graph_destroy(void* graph);
}
