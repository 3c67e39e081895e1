// Where the daemon of NVIDIA's Multi-Process Service (MPS) is that the CUDA programs of this process would use.
// Thread rule: reads the environment; any thread.
#pragma once

#include <optional>
#include <string>

namespace reigen::base {

inline constexpr const char* kMpsPipes = "CUDA_MPS_PIPE_DIRECTORY";  // the variable that names the daemon's folder

// The folder that CUDA_MPS_PIPE_DIRECTORY names, or CUDA's standard one, nvidia-mps in the folder for temporary files.
std::string mps_folder();

// Whether a daemon listens on its socket in `folder`. The socket of a daemon that has died remains, so this connects.
bool mps_daemon_listens(const std::string& folder);

}  // namespace reigen::base
