// What every function of the plug-in does with an error of its own.
#pragma once

namespace reigen::device {

// Clears the runtime's last error. Otherwise the next caller of cudaGetLastError() would take this error for its own.
inline int forgotten(cudaError_t result) {
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  return result;
}

}  // namespace reigen::device
