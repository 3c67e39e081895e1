// Tensors whose memory is a file without a name: the kernel keeps of it in memory what there is room for and writes the
// rest to the disk. The blocks are taken at once, so that a full disk is an error here and not a signal later.
// Thread rule: as a tensor's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// One-dimensional, zero; blocks are taken for elements [first, last), what else is written may find the disk full.
// Throws IoError: the directory is not there (66), not writable (77), full or not on a disk that files can be mapped of
// (74).
at::Tensor disk_tensor(std::int64_t count, at::ScalarType type, const std::filesystem::path& directory,
                       std::int64_t first, std::int64_t last);

// The same, one file of all ranks, who are on one machine. Collective; what fails on one fails on all.
at::Tensor common_disk_tensor(const Communicator& ranks, std::int64_t count, at::ScalarType type,
                              const std::filesystem::path& directory);

}  // namespace reigen::tensor
