// Tensors whose memory is an unnamed file. The kernel keeps as much of the file in memory as there is room for, and
// writes the rest to the disk. Disk blocks are allocated at once, so that a full disk is an error here, and not a
// signal (SIGBUS) at a later write.
// Thread rule: as for any tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// A one-dimensional tensor of zeros. Disk blocks are allocated for elements [first, last); writes to other elements may
// find the disk full. Throws IoError: with exit code 66 if the directory does not exist, with 77 if it is not writable,
// and with 74 if the disk is full or its files cannot be mapped.
at::Tensor disk_tensor(std::int64_t count, at::ScalarType type, const std::filesystem::path& directory,
                       std::int64_t first, std::int64_t last);

// Does the same as disk_tensor() with one file that all ranks map, and allocates disk blocks for all elements. The
// ranks must be on one machine. Collective; a failure on one rank is thrown on all ranks.
at::Tensor common_disk_tensor(const Communicator& ranks, std::int64_t count, at::ScalarType type,
                              const std::filesystem::path& directory);

}  // namespace reigen::tensor
