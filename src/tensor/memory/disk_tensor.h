// Tensors whose memory is an unnamed file. The kernel keeps as much of it in memory as there is room for, and writes
// the rest to the disk. Disk blocks are allocated at once, so that a full disk is an error here and not a signal
// later.
// Thread rule: as a tensor's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// A one-dimensional tensor of zeros. Disk blocks are allocated for elements [first, last); writes to other elements
// may find the disk full. Throws IoError (exit code in parentheses): the directory is not there (66), not writable
// (77), full, or on a disk whose files cannot be mapped (74).
at::Tensor disk_tensor(std::int64_t count, at::ScalarType type, const std::filesystem::path& directory,
                       std::int64_t first, std::int64_t last);

// The same, as one file of all ranks, which are on one machine. Collective; a failure on one rank is thrown on all.
at::Tensor common_disk_tensor(const Communicator& ranks, std::int64_t count, at::ScalarType type,
                              const std::filesystem::path& directory);

}  // namespace reigen::tensor
