// Names the kind of a file that is not a file of weights, by its first bytes, so that nobody takes a web page for a
// damaged model. Thread rule: no shared state.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "format/input_file.h"
#include "format/zip_archive.h"

namespace reigen::format {

struct FileKind {
  std::string name;  // "a pointer of Git LFS, which stands for a file of 5 bytes"
  std::string fix;   // what the user can do
};

// Returns nullopt for an unknown kind, and for the kinds that src/format can read (safetensors, a zip file). Throws
// IoError.
std::optional<FileKind> kind_of_file(const InputFile& file);

// The kind of a zip file whose records are not those of torch.save; nullopt if it is not known.
std::optional<FileKind> kind_of_archive(std::span<const ZipRecord> records);

// True if the file may be a safetensors file: it begins with a length that is allowed, then "{". Throws IoError.
bool begins_as_safetensors(const InputFile& file);
bool begins_as_zip(const InputFile& file);  // files of torch.save since PyTorch 1.6 are zip files
bool begins_as_pickle(const InputFile& file);

}  // namespace reigen::format
