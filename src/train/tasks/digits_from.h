// Names the folder from which the MNIST tasks read their files, for a run's first line. The files may be in a folder
// below the given one.
// Thread rule: a pure function of the file system.
#pragma once

#include <string>

#include "reigen/data/mnist.h"

namespace reigen::train {

// Returns "digits from data/MNIST/raw" if the files are in this folder, which may lie below the given one. Throws
// the errors of data::mnist().
inline std::string digits_from(const std::string& folder) {
  const auto found = data::mnist_files(folder).images.parent_path();
  return "digits from " + (found == std::filesystem::path(folder) ? folder : found.string());
}

}  // namespace reigen::train
