// Reads the options of C callers. Their structs begin with their size, so that the program and the library may be of
// different versions.
#pragma once

#include "reigen/c/comm.h"
#include "reigen/comm/options.h"
#include "reigen/runtime/init.h"

namespace reigen::c {

// In the next three functions NULL means the default options.
InitOptions to_init_options(const reigen_init_options* options);
reigen_comm_options to_comm_options(const reigen_comm_options* options);
reigen_call_options to_call_options(const char* function, const reigen_call_options* options);

// `device`: the GPU of the group, or the cpu.
comm::CallOptions to_cpp(const reigen_call_options& options, const Device& device);
comm::Progress progress_of(const reigen_call_options& options);
comm::GroupOptions to_cpp(const reigen_comm_options& options);  // does not set GroupOptions::store

}  // namespace reigen::c
