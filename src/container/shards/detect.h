// Knows the kind of a file by its first bytes.
// Thread rule: pure functions of the file system.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "reigen/container/container.h"

namespace reigen::container {

struct FileForm {
  std::optional<ContainerKind> kind = {};  // of what is inside, if the file is compressed and that can be told
  std::string packed_by = {};              // "gzip", "zlib", "zstd", "xz", "bzip2", if the file is compressed
};

// Throws IoError. An empty file has no kind.
FileForm form_of_file(const std::filesystem::path& path);

// Whether the 512 bytes are the header of a tar member, by their checksum.
bool is_tar_header(std::span<const std::byte> block);

}  // namespace reigen::container
