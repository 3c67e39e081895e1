// LibTorch's CUDA graphs over the stand-in, under the names of the plug-in libreigen_torch_cuda.so.
#include "tensor/gpu/graph_calls.h"

using reigen::tensor::graph_calls;

extern "C" {

int reigen_torch_cuda_version() { return reigen::tensor::kGraphPluginVersion; }
void* reigen_graph_make() { return graph_calls().make(); }
void reigen_graph_begin(void* graph) { graph_calls().begin(graph); }
void reigen_graph_end(void* graph) { graph_calls().end(graph); }
void reigen_graph_replay(void* graph) { graph_calls().replay(graph); }
void reigen_graph_destroy(void* graph) { graph_calls().destroy(graph); }

}  // extern "C"
