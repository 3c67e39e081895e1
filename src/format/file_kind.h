// What a file is when it is not what a reader of weights wants: told by its first bytes, so that nobody takes a web
// page for a damaged model. Thread rule: no shared state.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "format/input_file.h"
#include "format/zip_archive.h"

namespace reigen::format {

struct FileKind {
  std::string name;  // "a pointer of Git LFS, which stands for a file of 5 bytes"
  std::string fix;   // what to do
};

// Nothing: a kind that is not known, or one that a reader here takes (safetensors, a zip file). Throws IoError.
std::optional<FileKind> kind_of_file(const InputFile& file);

// Of a zip file whose records are not those of torch.save. Nothing: not known.
std::optional<FileKind> kind_of_archive(std::span<const ZipRecord> records);

// May the file be a safetensors file: a header of JSON, of a length that fits? Throws IoError.
bool begins_as_safetensors(const InputFile& file);
bool begins_as_zip(const InputFile& file);  // as PyTorch's files since 1.6
bool begins_as_pickle(const InputFile& file);

}  // namespace reigen::format
